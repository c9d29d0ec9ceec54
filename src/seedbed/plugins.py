"""Kinds from outside the package: a user's own optimizers, statistics, charts, families, tasks and so on.

    seedbed --plugin mine.py run study.toml

A plugin is a Python file that calls `seedbed.register` (docs/extending.md), or an installed package with an entry point
in the group `seedbed.plugins`. It is loaded before any setting is read, in every process of seedbed: workers,
compilations and jobs of the page find its path in SEEDBED_PLUGINS. Only a person names code to load; study files and
stores never do. A run that uses a kind of a plugin stores the plugin's name, its version and a digest of its source,
which are part of the run's id.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import traceback
from hashlib import blake2b
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from seedbed.data.catalogue import CorpusEntry, register_corpus
from seedbed.errors import MissingData, UsageError
from seedbed.settings import Origin, SettingsGroup, current_origin, register_settings

ENVIRONMENT_VARIABLE: Final = "SEEDBED_PLUGINS"  # paths of files, separated as in PATH
ENTRY_POINT_GROUP: Final = "seedbed.plugins"

loaded_plugins: dict[str, Origin] = {}  # by path, or by the name of the entry point


def register(kind: Any, name: str | None = None) -> Any:
    """Makes a kind known and returns it, so that it can be used as a decorator.

    A subclass of `TaskSettings`, `ModelSettings` or `Optimizer`, or a `CorpusEntry`, carries its own name. A subclass
    of `PositionEncoding`, `Store` (by its scheme) or `Engine`, a `ChartKind`, or a statistic (a function from the curve
    of a metric to a number) is registered under `name`. A class has to stand in a file of its own, not in a script or
    notebook: worker processes and later sessions could not find it.
    """
    if isinstance(kind, type) and kind.__module__ == "__main__":
        raise UsageError(
            f"{kind.__name__} is defined in a script or notebook, where worker processes cannot find it; move it to a "
            'file of its own, say mine.py, and load that: seedbed.load_plugin("mine.py") or seedbed --plugin mine.py'
        )
    if isinstance(kind, type) and issubclass(kind, SettingsGroup):
        return register_settings(kind)
    if isinstance(kind, CorpusEntry):
        return register_corpus(kind)
    if isinstance(kind, type):
        registered = _register_class(kind) if name is None else _register_named_class(name, kind)
        if registered is not None:
            return registered
    elif name is not None:
        from seedbed.charts.chart_kinds import ChartKind, register_chart
        from seedbed.stats.run_statistics import register_statistic

        return register_chart(name, kind) if isinstance(kind, ChartKind) else register_statistic(name, kind)
    raise UsageError(
        "seedbed.register takes a task, a model family, an optimizer or a corpus, and with a name a chart, a "
        f"statistic, a position encoding, a store or an engine, not {kind!r}"
    )


def _register_class(kind: type) -> type | None:
    from seedbed.training.optimizers import Optimizer, register_optimizer

    return register_optimizer(kind) if issubclass(kind, Optimizer) else None


def _register_named_class(name: str, kind: type) -> type | None:
    from seedbed.engines import Engine, register_engine
    from seedbed.models.positions import PositionEncoding, register_positions
    from seedbed.store import Store, register_store

    if issubclass(kind, Store):
        return register_store(name, kind)
    if issubclass(kind, Engine):
        return register_engine(name, kind)
    return register_positions(name, kind) if issubclass(kind, PositionEncoding) else None


def load_plugin_file(path: str | os.PathLike[str]) -> Origin:
    """Runs a plugin's file once per process and makes its kinds known; child processes will load it too."""
    file = Path(path).absolute()
    name = file.with_suffix("").name
    if str(file) in loaded_plugins:
        return loaded_plugins[str(file)]
    try:
        source = file.read_bytes()
    except OSError as error:
        raise MissingData(f"plugin {path} cannot be read ({error.strerror}); name a Python file") from None
    spec = importlib.util.spec_from_file_location(f"seedbed_plugin_{name}", file)
    if spec is None or spec.loader is None:
        raise UsageError(f"plugin {path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # so that its classes can be found by name, as dataclasses and pickle do
    origin = Origin(name, _declared_version(source), _digest(source))
    try:
        with current_origin(origin):
            spec.loader.exec_module(module)
    except Exception as error:
        sys.modules.pop(spec.name, None)
        raise UsageError(f"plugin {path} cannot be loaded: {_describe(error, file)}") from error
    loaded_plugins[str(file)] = origin
    _tell_child_processes(str(file))
    return origin


def load_plugins() -> None:
    """Loads what SEEDBED_PLUGINS names and the entry points of installed packages; called when seedbed is imported."""
    for path in filter(None, os.environ.get(ENVIRONMENT_VARIABLE, "").split(os.pathsep)):
        load_plugin_file(path)
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name not in loaded_plugins:
            loaded_plugins[entry.name] = _load_entry_point(entry)


def _load_entry_point(entry: EntryPoint) -> Origin:
    spec = importlib.util.find_spec(entry.module)
    source = Path(spec.origin).read_bytes() if spec is not None and spec.origin else b""
    origin = Origin(entry.name, entry.dist.version if entry.dist else "", _digest(source))
    with current_origin(origin):
        found = entry.load()  # a module that registers its kinds when imported, or a function that does
        if callable(found):
            found()
    return origin


def _tell_child_processes(path: str) -> None:
    known = os.environ.get(ENVIRONMENT_VARIABLE, "").split(os.pathsep)
    os.environ[ENVIRONMENT_VARIABLE] = os.pathsep.join(dict.fromkeys([*filter(None, known), path]))


def _declared_version(source: bytes) -> str:
    """The value of `__version__` in a file, which is not run yet."""
    found = re.search(rb"""^__version__\s*=\s*["']([^"']+)["']""", source, re.MULTILINE)
    return found[1].decode() if found else ""


def _digest(source: bytes) -> str:
    return blake2b(source, digest_size=8).hexdigest()


def _describe(error: Exception, file: Path) -> str:
    """The error in one line, with the plugin's own line that raised it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    if isinstance(error, SyntaxError) and error.lineno:
        lines.append(error.lineno)
    where = f" (line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}{where}"
