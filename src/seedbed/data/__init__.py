"""Where samples come from: NumPy only, but for `batches.py`, which draws them on the device."""
