"""Text from models and what models make of text: `sample.py`, `surprisal.py`; one run ready for both, `load.py`."""
