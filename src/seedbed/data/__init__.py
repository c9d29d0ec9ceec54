"""Corpora, tokenizers, datasets and batches: NumPy only, except for the `*batch*` modules, which draw on the device."""
