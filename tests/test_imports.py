"""The import direction of the parts: each imports only what stands above it, and few know torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import seedbed

ROOT = Path(seedbed.__file__).parent
PARTS = (
    "errors", "settings", "specs", "format", "records", "random_streams", "rng", "data", "tasks", "models", "study",
    "sampling", "interp", "training", "store", "stats", "charts", "report", "export", "engines", "estimates",
    "recorder", "pipeline", "search", "progress", "plugins", "api", "web", "cli", "__main__",
)  # fmt: skip
ON_THE_DEVICE = {f"tasks/{name}_batches.py" for name in ("equation", "corpus")} | {"data/batch.py"}
KNOW_TORCH = {"rng.py", *ON_THE_DEVICE, "sampling", "interp", "training", "export", "web/model_worker.py"}
NO_TORCH_IN_MODELS = {"models/__init__.py", "models/model_size.py", "models/parameter_formulas.py"}
FAMILIES = "models/families"  # import torch only inside methods


def modules() -> list[Path]:
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*.py"))
    return sorted(path for path in found if str(path) != "__init__.py")


def imported(path: Path, on_import: bool = False) -> set[str]:
    """Dotted names that a file imports, wherever the import stands; `on_import`: when the file itself is imported."""
    names, tree = set(), ast.parse((ROOT / path).read_text(encoding="utf-8"))
    for node in tree.body if on_import else ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def part_of(name: str) -> str:
    return Path(name).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=str)
def test_a_part_imports_only_what_stands_above_it(path):
    own = PARTS.index(part_of(str(path)))
    for name in imported(path):
        part = name.split(".")[1] if name.startswith("seedbed.") else None
        if part in PARTS:
            assert PARTS.index(part) <= own, f"{path} imports {name}, which stands below it"


@pytest.mark.parametrize("path", modules(), ids=str)
def test_torch_stays_where_it_belongs(path):
    knows = part_of(str(path)) in KNOW_TORCH or str(path) in KNOW_TORCH
    knows |= part_of(str(path)) == "models" and str(path) not in NO_TORCH_IN_MODELS
    in_families = str(path).startswith(FAMILIES)
    if in_families or not knows:
        assert not {name for name in imported(path, on_import=in_families) if name.split(".")[0] == "torch"}


@pytest.mark.parametrize("path", modules(), ids=str)
def test_sql_stays_inside_the_store(path):
    if part_of(str(path)) != "store":
        assert not {name for name in imported(path) if name.split(".")[0] in ("sqlalchemy", "sqlite3")}


def test_within_models_only_layers_know_the_run_axis():
    """No other model file speaks of runs: not in names, not in shapes."""
    for name in ("gpt.py", "recurrent.py", "lstm.py", "encoder.py", "positions.py", "hooks.py"):
        text = (ROOT / "models" / name).read_text(encoding="utf-8")
        assert "n_runs" not in text
        assert '"R ' not in text


@pytest.mark.parametrize("verb", [["--help"], ["plan", "quickstart"], ["ls"], ["show", "quickstart"]])
def test_reading_verbs_answer_without_torch_and_altair(verb, tmp_path):
    code = (
        "import sys; sys.argv = ['seedbed', *sys.argv[1:]]\n"
        "from seedbed.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'altair'} & sys.modules.keys()"
    )
    words = [sys.executable, "-c", code, *verb, *(["--home", str(tmp_path)] if len(verb) > 1 or verb == ["ls"] else [])]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_takes_a_fifth_of_a_second_and_no_torch():
    """In processor time; where the machine is slow or busy, 5 times what importing NumPy takes."""

    def seconds(module: str) -> float:
        code = (
            "import time, sys; start = time.process_time(); "
            f"import {module}; print(time.process_time() - start); assert 'torch' not in sys.modules"
        )
        done = [
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)
        ]
        return min(float(one.stdout) for one in done)

    assert seconds("seedbed") <= max(0.2, 5 * seconds("numpy"))


def test_the_server_of_the_page_never_loads_torch(tmp_path):
    """Models answer from a process of their own; the server itself stays small."""
    code = (
        "import sys; from pathlib import Path\n"
        "from seedbed.web.server import make_app; from seedbed.web.guard import Guard\n"
        "from seedbed.web.store_cache import StoreCache\n"
        "make_app(StoreCache(Path(sys.argv[1])), Guard.create('127.0.0.1', 8765))\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
