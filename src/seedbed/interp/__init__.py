"""Interpretability of trained runs: attention, ablations, LSTM gates; computes numbers, draws nothing.

text_attention.py        attention of one text as arrays with token labels; no torch
attention_extraction.py  attention of a text, or input gradients for models without attention
analysis_inputs.py       a sample of held-out inputs, with the kind of each token
heads.py                 attention on such a sample, and statistics of LSTM gates
pair_activations.py      logits and hidden units over all pairs of operands of modular addition
analysis.py              the record of all analyses of a run at one checkpoint; no torch
ablation.py              loss without a head, a sublayer or a layer, and after each layer (logit lens)
"""
