"""The axes in signatures (`Float[Tensor, "R B T D"]`) are true in training, evaluation, decoding and analysis.

jaxtyping's import hook checks every argument and result that is annotated as an array. It has to be there before the
modules are imported, so a process of its own trains a run of each family and looks inside it.
"""

from __future__ import annotations

import functools
import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxtyping import AbstractArray, install_import_hook

CHECKED_PACKAGES = [f"seedbed.{name}" for name in ("models", "interp", "training", "tasks", "sampling", "data", "rng")]
MIN_CHECKED_FUNCTIONS = 90  # that are called
called: set[str] = set()


def check_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """A type checker for jaxtyping that checks arrays only; mypy checks the rest."""
    signature = inspect.signature(function)
    hints = {name: one.annotation for name, one in signature.parameters.items() if is_array(one.annotation)}
    result_hint = signature.return_annotation if is_array(signature.return_annotation) else None
    if not hints and result_hint is None:
        return function

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        called.add(f"{function.__module__}.{function.__qualname__}")
        given = signature.bind(*args, **kwargs).arguments
        for name in [name for name in hints if name in given]:
            is_tuple = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            for value in given[name] if is_tuple else [given[name]]:
                check_array(f"{function.__qualname__}({name})", value, hints[name])
        result = function(*args, **kwargs)
        if result_hint is not None:
            check_array(f"the result of {function.__qualname__}", result, result_hint)
        return result

    return checked


def check_array(what: str, value: Any, hint: type) -> None:
    if not isinstance(value, hint):
        shape = f"{getattr(value, 'dtype', '')} {tuple(getattr(value, 'shape', ()))}"
        raise TypeError(f"{what} is {shape}, expected {hint.__name__}")


def is_array(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, AbstractArray)


def test_the_axes_in_signatures_are_those_of_the_arrays(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent
    environment = os.environ | {"SEEDBED_DEVICE": "cpu", "SEEDBED_HOME": "lab", "PYTHONPATH": f"{root / 'src'}:{root}"}
    done = subprocess.run(
        [sys.executable, "-c", "from tests.test_shapes import look_at_every_family as look; look()"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "checking the parameters of seedbed.models.positions.apply_rotary" in done.stdout  # the negative control
    assert int(done.stdout.splitlines()[-1]) >= MIN_CHECKED_FUNCTIONS


def look_at_every_family() -> None:
    with install_import_hook(CHECKED_PACKAGES, "tests.test_shapes.check_arrays"):
        import torch

        import seedbed as sb
        from seedbed.engines import machine
        from seedbed.models import positions

        machine.n_cores = lambda: 1  # no workers, which would have no hook
        Path("rhyme.txt").write_text("one for sorrow, two for mirth, three for a funeral. " * 20, encoding="utf-8")
        rows = [f"{'good' if i % 2 else 'bad'},a review of thing {i}" for i in range(40)]
        Path("reviews.csv").write_text("\n".join(["label,text", *rows]), encoding="utf-8")
        text = {"task": {"kind": "text", "corpus": "rhyme.txt", "length": 7}, "train.sample_every": 2}
        labels = {"task": {"kind": "labels", "corpus": "reviews.csv", "length": 7}, "model.kind": "encoder"}
        for base in (
            {"task.p": 5, "model.heads": 3, "model.dim": 12},
            {**text, "model": {"heads": 3, "dim": 12, "positions": "rotary", "dropout": 0.1}},
            {**text, "model": {"heads": 3, "dim": 12, "positions": "t5"}},
            {**text, "model": {"kind": "lstm", "dim": 7}},
            {**text, "model": {"kind": "gru", "dim": 7}},
            {**labels, "model.heads": 3, "model.dim": 12, "model.positions": "alibi"},
        ):
            look_inside(sb, {"train.steps": 4, "train.batch_size": 5, "train.eval_every": 2, **base})
        try:
            positions.apply_rotary(torch.zeros(2, 7, 3, 4), torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2))
        except TypeError as error:
            print(error)
        print(len(called))


def look_inside(sb: Any, base: dict[str, Any]) -> None:
    study = sb.Study(base=base, seeds=3)
    study.run()
    model = sb.load(study.runs()[0])
    if base.get("model.kind") == "encoder":
        print(model.classify("a review"))
    elif "task" in base:
        print(model.sample("one", tokens=9), model.surprisal("one for two"))
    else:
        print(model.top_next_tokens("3 + 1 ="), model.attention("3 + 1 ="))
