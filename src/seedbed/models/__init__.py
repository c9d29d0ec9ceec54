"""Sequence models: their families, modules, initialisation, hooks and decoders.

families/  the contract of a family (`base.py`) and the settings and sizes of each; no torch
gpt.py, encoder.py, recurrent.py, lstm.py, gru.py, with layers.py and positions.py   the modules, as a textbook has them
fast/      fused modules and decoders, equal to the readable ones by test and chosen in `fast/modules.py`
build.py   where training starts: the model of a pack with its initial weights

`model_size.py` and `parameter_formulas.py` do not import torch either, so that plans are estimated without it.
"""
