"""Published numbers with their source, their protocol, and how sure it is that they were read right.

The `*.toml` files here, and a person's own of the same form, hold one source each:

    source = "…"                     who published it, and where
    tag = "P"                        P read in the source itself, S quoted by another; M from memory and C computed are
                                     read over and never shown
    [protocols.NAME]                 how it was measured, as far as that is stated (`Protocol`)
    [[series]]                       where (table, figure or file), protocol, model, weights (hub id), methods, factor,
                                     training, values = { LENGTH = NUMBER }; a bound is a text, ">5" or "<5"
    [reproduce.NAME]                 a sweep (a built-in one, or a TOML file beside this one), the model of the series
                                     that it measures again, and the protocols it follows

`methods` are ropebench's names; several where it is not known which of them was measured, or where they are the same
thing for other checkpoints (`native` or `none`).
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from ropebench.errors import UsageError, unknown

TAGS = {
    "P": "read in the source",
    "S": "quoted by another source",
    "M": "from memory",
    "C": "computed",
}
SHOWN = ("P", "S")


@dataclass(frozen=True)
class Protocol:
    """How a number was measured. What is None or empty is not stated, or not to be compared.

    `metric` is ropebench's name for the number; `percent` numbers are printed as 0–100. `params` are the task's
    parameters; `corpus` the sources that hold its documents; `bos`: one is fed where the tokenizer has one; `unknown`
    lists settings that were not published and that a number depends on, `unlike` what ropebench does another way.
    """

    name: str
    task: str
    metric: str
    says: str
    percent: bool = False
    corpus: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    n: int | None = None
    bos: bool | None = None
    dtype: str | None = None
    unknown: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One published number. `value` is in the metric's own unit (0–1 for scores); `bound` is "<" or ">" where only a
    bound was published. `factor` is None where it is not stated, or none applies."""

    source: str
    where: str
    tag: str
    protocol: Protocol
    task: str
    model: str
    weights: str | None
    methods: tuple[str, ...]
    factor: float | None
    training: str
    length: int
    value: float
    bound: str = ""

    @property
    def label(self) -> str:
        """Method and factor as ropebench writes them: `yarn×16`; `yarn or yarn_paper×16`."""
        return " or ".join(self.methods) + (f"×{self.factor:g}" if self.factor is not None else "")

    @property
    def cited(self) -> str:
        """Source, place in it, and for what was not read there a word about it."""
        return f"{self.source}: {self.where}" + ("" if self.tag == "P" else f" ({TAGS[self.tag]})")


@dataclass(frozen=True)
class Reproduction:
    """A sweep that measures what a source published, by name."""

    name: str
    sweep: str
    model: str
    protocols: tuple[Protocol, ...]
    rows: tuple[Row, ...]
    source: str


@dataclass(frozen=True)
class Source:
    """All that one file says."""

    rows: tuple[Row, ...]
    reproductions: tuple[Reproduction, ...]


def published(extra: Sequence[str] = ()) -> list[Row]:
    """Every published number that may be shown: the built-in ones, then those of the files `extra`.

    Raises UsageError for a file that cannot be read or is not of this form.
    """
    return [row for source in _sources(extra) for row in source.rows]


def reproduction(name: str, extra: Sequence[str] = ()) -> Reproduction:
    """What `ropebench reproduce NAME` stands for. Raises UsageError with the nearest name."""
    known = reproductions(extra)
    if name not in known:
        raise unknown("reproduction", name, known, "or one of a file given with --published")
    return known[name]


def reproductions(extra: Sequence[str] = ()) -> dict[str, Reproduction]:
    """All reproductions by name; those of `extra` win."""
    return {one.name: one for source in _sources(extra) for one in source.reproductions}


def _sources(extra: Sequence[str]) -> list[Source]:
    own = sorted(Path(__file__).parent.glob("*.toml"))
    return [_read(path) for path in [*own, *(Path(os.path.expanduser(word)) for word in extra)]]


def _read(path: Path) -> Source:
    where = f"published file {path.name!r}"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{where} cannot be read: {error.strerror}") from None
    except ValueError as error:  # not UTF-8, not TOML, a null byte in the name
        raise UsageError(f"{where}: {error}") from None
    _check(where, table, {"source": str, "tag": str, "protocols": dict, "series": list, "reproduce": dict})
    protocols = {name: _protocol(f"{where}: protocol {name}", name, one) for name, one in table["protocols"].items()}
    rows: list[Row] = []
    for number, one in enumerate(table["series"], 1):
        rows += _rows(f"{where}: series {number}", one, table["source"], table["tag"], protocols)
    shown = tuple(row for row in rows if row.tag in SHOWN)
    made = []
    for name, one in table.get("reproduce", {}).items():
        at = f"{where}: reproduce {name}"
        _check(at, one, {"sweep": str, "model": str, "protocols": list})
        chosen = tuple(_named(at, protocols, word) for word in one["protocols"])
        beside = path.parent / one["sweep"]  # a sweep file of its own, or a built-in one
        sweep = str(beside) if one["sweep"].endswith(".toml") else one["sweep"]
        mine = tuple(row for row in shown if row.model == one["model"] and row.protocol in chosen)
        made.append(Reproduction(name, sweep, one["model"], chosen, mine, table["source"]))
    return Source(shown, tuple(made))


def _protocol(where: str, name: str, table: Any) -> Protocol:
    kinds: dict[str, type] = {
        "task": str,
        "metric": str,
        "says": str,
        "percent": bool,
        "corpus": list,
        "params": dict,
        "n": int,
    }
    kinds |= {"bos": bool, "dtype": str, "unknown": list, "unlike": list}
    needed = [f.name for f in fields(Protocol) if f.default is MISSING and f.default_factory is MISSING]
    _check(where, table, kinds, [one for one in needed if one != "name"])
    given: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in table.items()}
    return Protocol(name, **given)


def _rows(where: str, table: Any, source: str, tag: str, protocols: Mapping[str, Protocol]) -> list[Row]:
    kinds: dict[str, type] = {"where": str, "protocol": str, "model": str, "methods": list, "values": dict}
    kinds |= {"tag": str, "task": str}
    kinds |= {"weights": str, "factor": int, "training": str}
    _check(where, table, kinds, ("where", "protocol", "model", "methods", "values"))
    tag = table.get("tag", tag)
    if tag not in TAGS:
        raise unknown(f"tag in {where}:", tag, TAGS)
    protocol, factor = _named(where, protocols, table["protocol"]), table.get("factor")
    rows = []
    for length, given in table["values"].items():
        bound = given[:1] if isinstance(given, str) and given[:1] in ("<", ">") else ""
        try:
            tokens, value = int(length), float(given[1:] if bound else given)
        except (TypeError, ValueError):
            raise UsageError(f'{where}: {length} = {given!r}: must be LENGTH = NUMBER, or a bound as ">5"') from None
        if protocol.percent:
            value /= 100
        rows.append(
            Row(
                source,
                table["where"],
                tag,
                protocol,
                table.get("task", protocol.task),
                table["model"],
                table.get("weights"),
                tuple(table["methods"]),
                None if factor is None else float(factor),
                table.get("training", ""),
                tokens,
                value,
                bound,
            )
        )
    return rows


def _named(where: str, protocols: Mapping[str, Protocol], name: str) -> Protocol:
    if name not in protocols:
        raise unknown(f"protocol in {where}:", name, protocols)
    return protocols[name]


def _check(where: str, table: Any, kinds: Mapping[str, type], needed: Sequence[str] | None = None) -> None:
    """Raise UsageError for a key that is not known, of another type, or missing (by default all but `reproduce`)."""
    if not isinstance(table, Mapping):
        raise UsageError(f"{where}: must be a table")
    for key, value in table.items():
        if key not in kinds:
            raise unknown(f"key of {where}:", key, kinds)
        accepted = (int, float) if kinds[key] is int else kinds[key]
        if not isinstance(value, accepted) or (isinstance(value, bool) and kinds[key] is not bool):
            raise UsageError(f"{where}: {key} = {value!r}: must be of type {kinds[key].__name__}")
    missing = [key for key in (needed if needed is not None else kinds) if key != "reproduce" and not table.get(key)]
    if missing:
        raise UsageError(f"{where}: needs {', '.join(missing)}")
