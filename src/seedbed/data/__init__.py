"""Corpora, tokenizers, windows and batches: NumPy only, except for `batch.py`, which draws on the device."""
