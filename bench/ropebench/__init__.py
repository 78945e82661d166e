"""ropebench: RoPE context-extension methods × tasks × context lengths, on identical samples.

Importing the package loads nothing heavy. The names a plug-in needs are looked up on first use:

    from ropebench import Frequencies, Method          # a way of extending the window
    from ropebench import Example, Metric, Output, Task, Window   # a way of measuring it

and `ropebench.load_results("results")` gives what is stored as a pandas DataFrame.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ropebench.errors import UsageError
    from ropebench.geometry import Frequencies
    from ropebench.methods import Method
    from ropebench.report.loading import load_results
    from ropebench.task import Example, Metric, Output, Task, Window

__version__ = "0.1.0"

__all__ = [
    "Example",
    "Frequencies",
    "Method",
    "Metric",
    "Output",
    "Task",
    "UsageError",
    "Window",
    "__version__",
    "load_results",
]

_HOMES = {
    "Example": "task",
    "Frequencies": "geometry",
    "Method": "methods",
    "Metric": "task",
    "Output": "task",
    "Task": "task",
    "UsageError": "errors",
    "Window": "task",
    "load_results": "report.loading",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
