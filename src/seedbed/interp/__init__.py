"""Interpretability of trained runs: attention, ablations, gates; computes numbers, draws nothing.

analysis.py              the record of all analyses of a run at one checkpoint; no torch
text_attention.py        attention of one text as arrays with token labels; no torch
attention_extraction.py  attention of a text or of held-out inputs; input gradients for models without attention
activations.py           recurrent gates on held-out inputs; logits and hidden units over all pairs of operands
ablation.py              loss without a head, a sublayer or a layer, and after each layer (logit lens)
"""
