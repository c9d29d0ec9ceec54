"""Triton kernels, where torch's own move more memory than needed; imported only on a GPU.

    heads_out = short_attention(qkv, bias, slopes, heads, causal)
    heads_out = tiny_attention(q, k, v, mask)
    hidden = bias_gelu(x, bias)
    total, normed, *_ = add_layer_norm(x, y, bias, weight, shift, keep_x_dtype)

All but `tiny_attention` also add the bias of the preceding linear layer and compute its gradient in the same pass. They
equal `layers.attention`, `F.gelu` and `F.layer_norm` (tests/models/test_kernels.py).
"""
