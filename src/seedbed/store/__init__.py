"""The store: studies, runs and metrics in one database, weights in files next to it; no torch.

>>> import tempfile
>>> from pathlib import Path
>>> with Store.open(Path(tempfile.mkdtemp()) / "lab") as store:
...     store.studies()
[]
"""

from seedbed.store.store import Store

__all__ = ["Store"]
