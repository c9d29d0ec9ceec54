"""What goes on inside a trained run: attention, the parts a loss rests on, gates; numbers out, nothing drawn.

maps.py       attention as arrays with the labels of their tokens; no torch
attention.py  attention of a text, and its counterpart for models that have none: input gradients
inputs.py     a sample of the inputs that a run was held out from, with the kinds of their tokens
heads.py      attention on such a sample, and the gates of an LSTM
circles.py    logits and hidden units over all pairs of numbers, where numbers add on circles
looks.py      what was seen at one kept step, as a record; no torch
ablation.py   what the loss is without a head or a layer, and after each layer (logit lens)
"""
