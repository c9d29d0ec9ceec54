"""Kernels of our own for a GPU, where the library's move more bytes than they need; imported only where there is one.

    mixed = short_attention(qkv, bias, slopes, heads, causal)     # attention.py
    hidden = biased_gelu(x, bias)                                 # gelu.py
    total, normed, *_ = add_norm(x, y, bias, weight, shift)       # norm.py

All add the bias of the map before them and give its gradient from the same pass. They are the functions of
`layers.attend`, `F.gelu` and `F.layer_norm` (tests/models/test_kernels.py).
"""
