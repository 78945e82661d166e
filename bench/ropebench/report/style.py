"""One look per method, in every plot: colour, marker and line of its own, in a fixed order.

Colours are those of Okabe and Ito with a few darker companions, told apart by the colour-blind and, through marker
and line, in black and white. The order is that of tables and legends: baselines, then scaling of the whole table,
then by parts, then mixed radix.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

BASELINES = ("native", "none")


def baseline_of(names: Iterable[str]) -> str | None:
    """The name of the unmodified model among methods: `native` where the checkpoint ships a scaling, else `none`."""
    found = set(names)
    return next((name for name in BASELINES if name in found), None)


@dataclass(frozen=True)
class Style:
    """How a method's line is drawn; `hollow` markers and other dashes tell variants of one method apart."""

    colour: str
    line: str
    marker: str
    hollow: bool = False


STYLES: dict[str, Style] = {
    "none": Style("#000000", "-", "o"),
    "native": Style("#000000", "--", "X"),
    "pi": Style("#CC79A7", "-", "v"),
    "ntk": Style("#E69F00", "-", "^"),
    "dynamic_ntk": Style("#E69F00", "--", "<"),
    "ntk_by_parts": Style("#8C6D31", "-", "D"),
    "ntk_by_parts_paper": Style("#8C6D31", "--", "d"),
    "yarn": Style("#0072B2", "-", "s"),
    "yarn_paper": Style("#56B4E9", "--", "P"),
    "dynamic_yarn": Style("#0072B2", ":", "p"),
    "longrope": Style("#777777", "-", "h"),
    "llama3": Style("#5D3A9B", "--", "D"),
    "mrrope_uni": Style("#009E73", "-.", ">"),
    "mrrope_pro": Style("#D55E00", "-", "*"),
    "mrrope_reg": Style("#882255", ":", "<"),
}
_COLOURS = ("#332288", "#117733", "#999933", "#AA4499", "#44AA99", "#661100")
_LINES = ("-", "--", "-.", ":")
_MARKERS = ("D", "v", "^", "s", "P", "X", "h")


def method_of(label: str) -> str:
    """The method's name in a row label such as `yarn×2` or `yarn:beta_fast=16×2`."""
    found = re.match(r"\w+", label)
    return found.group(0) if found else label


def style(name: str, variant: int = 0) -> Style:
    """The look of a method. An unknown name gets one from its hash, so it keeps it in every plot and every run.

    `variant` counts rows of the same method within one plot (other parameters or factor): same colour and marker,
    hollow, with another line.
    """
    look = STYLES.get(name)
    if look is None:
        code = int(hashlib.sha256(name.encode()).hexdigest(), 16)
        look = Style(
            _COLOURS[code % len(_COLOURS)],
            _LINES[code // 7 % len(_LINES)],
            _MARKERS[code // 31 % len(_MARKERS)],
        )
    if variant:
        line = _LINES[(_LINES.index(look.line) + variant) % len(_LINES)]
        look = replace(look, line=line, hollow=variant % 2 == 1)
    return look


def styles(labels: list[str], names: list[str] | None = None) -> dict[str, Style]:
    """The look of each row label of one plot; rows of the same method count up their variants in the given order."""
    seen: dict[str, int] = {}
    looks: dict[str, Style] = {}
    for label, name in zip(labels, names or [method_of(label) for label in labels], strict=True):
        looks[label] = style(name, seen.get(name, 0))
        seen[name] = seen.get(name, 0) + 1
    return looks


def order(name: str) -> tuple[int, str]:
    """Sort key of a method's name: the fixed order first, strangers after it by name."""
    known = list(STYLES)
    return (known.index(name) if name in STYLES else len(known), name)
