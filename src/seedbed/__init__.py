"""A laboratory for small sequence models: a study in, answers with uncertainty out.

    import seedbed as sb

    study = sb.Study("quickstart").run()     # or a study file, or one written out: sb.Study(name=…, base=…, grid=…)
    study.table(), study.answer()            # mean ± std over seeds; answers in sentences
    study.results().to_pandas()              # every evaluation, as a DataFrame
    sb.load(study.runs()[0]).sample("1 + 2 =")

The guide is docs/python.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import seedbed.models.families as _families  # noqa: F401  registers its kinds
import seedbed.tasks as _tasks  # noqa: F401
from seedbed.errors import SeedbedError
from seedbed.plugins import load_plugin_file as load_plugin
from seedbed.plugins import load_plugins as _load_plugins
from seedbed.plugins import register

if TYPE_CHECKING:
    from seedbed.api.archives import import_archive
    from seedbed.api.homes import home, load, load_all
    from seedbed.api.study import Study

__version__ = "0.2.0"
__all__ = [
    "SeedbedError",
    "Study",
    "__version__",
    "home",
    "import_archive",
    "load",
    "load_all",
    "load_plugin",
    "register",
]


# Imported when they are first used, so that `import seedbed` and `seedbed --help` are quick.
_MODULES = {
    "Study": "api.study",
    "home": "api.homes",
    "import_archive": "api.archives",
    "load": "api.homes",
    "load_all": "api.homes",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__


_load_plugins()  # here, so that every process that imports seedbed knows the same kinds
