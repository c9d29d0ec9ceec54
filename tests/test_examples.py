"""The scripts in examples/ run as they stand, with few updates, and their cells are those of a notebook."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
EXPECTED = {  # what each prints, and the files that it leaves
    "grokking": (["of 4 runs found the rule", "t_f(A_val)"], ["grokking.svg"]),
    "alibi": (["Is validation loss lower with ALiBi?", "alibi    val/perplexity[length=128]"], ["alibi.svg"]),
    "own_text": (["bits per character", "A_val", "weather"], ["news.csv"]),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs_to_its_end_without_network(name: str, tmp_path: Path) -> None:
    environment = os.environ | {"SEEDBED_TINY": "1", "SEEDBED_HOME": "lab", "SEEDBED_DEVICE": "cpu"}
    environment |= {"SEEDBED_OFFLINE": "1"}
    script = EXAMPLES / f"{name}.py"
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    texts, files = EXPECTED[name]
    for text in texts:
        assert text in done.stdout
    for file in files:
        assert (tmp_path / file).stat().st_size > 100


def test_every_example_is_tried_and_has_cells_of_text_and_code() -> None:
    scripts = {path.stem: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")}
    assert scripts.keys() == EXPECTED.keys()
    for text in scripts.values():
        assert text.startswith("# %% [markdown]\n# # ")
        assert text.count("# %%\n") >= 4
        assert 'if __name__ == "__main__"' not in text
