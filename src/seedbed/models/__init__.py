"""Sequence models: GPT, encoder and LSTM, their initialisation, hooks, and sizes in closed form.

`model_size.py` and `flops.py` do not import torch, so that plans can be estimated without it; training starts at
`build.py`.
"""
