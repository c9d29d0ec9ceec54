"""Text generation (`sampler.py`) and scoring of text (`surprisal.py`); `loaded_run.py` offers both for a stored run."""
