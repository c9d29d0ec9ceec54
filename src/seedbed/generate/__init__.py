"""Text from models and what models make of text: sampling (`sample.py`), surprisal (`surprisal.py`), one run (`load.py`)."""
