"""Sequence models: GPT and LSTM as shapes and forward passes, their initial weights, and their sizes in closed form.

`count.py` needs no torch, so a plan can be priced without loading it; `build.py` is the way in for training.
"""
