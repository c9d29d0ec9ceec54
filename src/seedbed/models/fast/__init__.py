"""Faster versions of the readable code in `models/`, each equal to it by test.

modules.py         the only place that chooses: fused modules that replace readable ones of known types
fused_ops.py       fused parts of a model, by torch's own kernels or ours
kernels/           our Triton kernels
lstm_recurrence.py the recurrence of an LSTM layer on a GPU
gpt_decoder.py     KV-cached decoding, and the choice of a GPT's decoder
numpy_decoder.py   the same for one sample on a CPU
linear.py, cached_masks.py   used by `layers.py`
"""
