"""Kernels of our own for a GPU, where the library's move more bytes than they need; imported only where there is one.

    mixed = short_attention(qkv, bias, slopes, heads, causal)     # attention.py
    hidden = biased_gelu(x, bias)                                 # gelu.py

Both add the bias of the map before them and give its gradient from the same pass. They are the functions of
`layers.attend` and `F.gelu` (tests/models/test_kernels.py).
"""
