"""What there is, as plain rows for the command line: methods, tasks, models, sweeps; no weights are loaded.

Rows of methods and tasks hold all that a class says of itself, from which `report.pages` makes a page: parameters with
the comment beside them in the source, docstrings, and of a task its metrics, scorer and needs.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, asdict, fields, replace
from io import StringIO
from itertools import groupby
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ropebench.aliases import aliases
from ropebench.errors import UsageError
from ropebench.methods import ALIASES
from ropebench.published import TAGS, Row, published
from ropebench.record import Json
from ropebench.registry import Entry, Registry, sweeps
from ropebench.task import WANTS


def listing(what: str, plugins: Sequence[str] = (), models: str | None = None, more: Sequence[str] = ()) -> list[Json]:
    """Rows of everything that can be named: `what` is methods, tasks, models, sweeps or published (numbers; `more` are
    files with more of them)."""
    if what == "models":
        return [
            {
                "name": spec.id,
                "source": "this package" if spec.bundled else spec.source,
                "trained_length": spec.trained_length,
                "chat_template": "on" if spec.instruct else "off",
                "note": spec.note,
            }
            for spec in aliases(models).values()
        ]
    if what == "sweeps":
        return [{"name": name, "about": _first_comment(path.read_text("utf-8"))} for name, path in sweeps().items()]
    if what == "published":
        keyed = groupby(published(more), key=lambda row: replace(row, length=0, value=0.0, bound=""))
        return [_published(list(rows)) for _, rows in keyed]
    registry, kind = Registry.load(plugins), what.removesuffix("s")
    rows = [_task(entry) if kind == "task" else _method(entry) for entry in registry.of(kind)]
    rows += [
        {"name": name, "version": None, "summary": f"broken: {why}", "origin": "entry point"}
        for (k, name), why in registry.broken.items()
        if k == kind
    ]
    return rows


def _first_comment(text: str) -> str:
    return next((line.lstrip("# ").strip() for line in text.splitlines() if line.startswith("#")), "")


def _published(rows: Sequence[Row]) -> Json:
    """One line of a published table: its numbers by length (0–1 for scores; a bound as text)."""
    row = rows[0]
    values = {str(one.length): one.value if not one.bound else f"{one.bound}{one.value:g}" for one in rows}
    short = {length: value if isinstance(value, str) else f"{value:.6g}" for length, value in values.items()}
    return {
        "source": row.source,
        "where": row.where,
        "model": row.weights or row.model,
        "method": row.label,
        "training": row.training,
        "task": row.task,
        "protocol": row.protocol.says,
        "not_published": "; ".join(row.protocol.unknown),
        "metric": row.protocol.metric,
        "values": values,
        "numbers": "  ".join(f"{length}: {value}" for length, value in short.items()),
        "tag": row.tag,
        "confidence": TAGS[row.tag],
    }


def _task(entry: Entry) -> Json:
    """A task's row. Metrics, scorer and corpus may depend on parameters: they are those of the default ones."""
    cls: Any = entry.cls
    task = _made(cls)
    metrics = (task or cls).metrics
    scorer = task.scorer_name() if task else cls.scorer
    return {
        **_said(entry),
        "metric": metrics[0].name if metrics else None,
        "metrics": [asdict(metric) for metric in metrics],
        "scorer": scorer,
        "other_scorers": {at: name for at, name in _scorers(cls) if name != scorer},
        "minimum_length": cls.minimum_length,
        "default_n": cls.default_n,
        "needs_corpus": cls.needs_corpus,
        "default_docs": task.docs() if task else cls.default_docs,
        "chat": cls.chat,
        "protocol": _module_doc(cls),
        "about": _own_doc(cls),
    }


def _made(cls: Any, **params: Any) -> Any:
    """An instance; None where a parameter has no default, or these do not go together."""
    try:
        return cls(**params)
    except (TypeError, ValueError, UsageError):
        return None


def _scorers(cls: Any) -> Iterator[tuple[str, str]]:
    """The scorer of each value of each parameter that is a choice, the others at their defaults."""
    for name, kind in _types(cls).items():
        for value in get_args(kind) if get_origin(kind) is Literal else ():
            if task := _made(cls, **{name: value}):
                yield f"{name}={value}", task.scorer_name()


def _method(entry: Entry) -> Json:
    return {
        **_said(entry),
        "aliases": [alias for alias, name in ALIASES.items() if name == entry.name],
        "length_dependent": entry.cls.length_dependent,
        "about": _own_doc(entry.cls) or _module_doc(entry.cls),
    }


def _said(entry: Entry) -> Json:
    return {
        "name": entry.name,
        "version": entry.cls.version,
        "summary": entry.cls.summary,
        "parameters": parameters(entry.cls),
        "source": entry.cls.source,
        "origin": entry.origin,
    }


def parameters(cls: type[Any]) -> list[Json]:
    """A class's parameters: name, default as a word, what it `takes`, and its `meaning` (the comment beside it)."""
    types, comments = _types(cls), _comments(cls)
    return [
        {
            "name": f.name,
            "required": f.default is MISSING and f.default_factory is MISSING,
            "default": _word(f.default if f.default_factory is MISSING else f.default_factory()),
            "takes": _takes(types[f.name]) if f.name in types else "",
            "meaning": comments.get(f.name, ""),
        }
        for f in fields(cls)
    ]


def _types(cls: type[Any]) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except NameError:  # said when the class is asked for
        return {}


def _word(value: Any) -> str:
    """A default as it is written on the command line; nothing where there is none."""
    if isinstance(value, bool | None):
        return str(value).lower()
    return "" if value is MISSING else "/".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _takes(wanted: Any) -> str:
    """The words that a parameter of the type `wanted` accepts."""
    choices = get_args(wanted) if get_origin(wanted) in (Union, UnionType) else (wanted,)
    first = next(choice for choice in choices if choice is not NoneType)
    kind = get_origin(first) or first
    words = [str(value) for value in get_args(first)] if kind is Literal else [WANTS.get(kind, "a word")]
    return " or ".join([", ".join(words), *(["none"] if NoneType in choices else [])])


def _comments(cls: type[Any]) -> dict[str, str]:
    """The comments beside a class's parameters; none where its source is not at hand."""
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):
        return {}
    tokens = tokenize.generate_tokens(StringIO(source).readline)
    beside = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    lines = {ast.unparse(node.target): node.end_lineno for node in body.body if isinstance(node, ast.AnnAssign)}
    return {name: beside[line] for name, line in lines.items() if line in beside}


def _module_doc(cls: type[Any]) -> str:
    return inspect.cleandoc(sys.modules[cls.__module__].__doc__ or "")


def _own_doc(cls: type[Any]) -> str:
    """A class's own docstring without its examples; nothing where `dataclass` has put the signature there."""
    text = inspect.cleandoc(vars(cls).get("__doc__") or "")
    if text.startswith(f"{cls.__name__}("):
        return ""
    return "\n\n".join(part for part in text.split("\n\n") if not part.startswith(">>>"))
