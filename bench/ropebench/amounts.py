"""Times, sizes and counts as a person reads them: three digits and a unit that fits."""

from __future__ import annotations


def duration(seconds: float | None) -> str:
    """`0.41 s`, `41 s`, `3 min 05 s`, `2 h 07 min`, `3 d 4 h`; `unknown` for None."""
    if seconds is None:
        return "unknown"
    if seconds < 59.5:
        return f"{seconds:.2f} s" if seconds < 0.995 else f"{seconds:.3g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days} d {hours} h"


def flop(number: float | None) -> str:
    """`12.3 GFLOP`, `1.2 PFLOP` …; `unknown` for None."""
    return _prefixed(number, "FLOP", ("", "K", "M", "G", "T", "P", "E"))


def size(number: float | None) -> str:
    """Bytes in powers of 1000: `1.31 GB`; `unknown` for None."""
    return _prefixed(number, "B", ("", "k", "M", "G", "T", "P", "E"))


def _prefixed(number: float | None, unit: str, prefixes: tuple[str, ...]) -> str:
    if number is None:
        return "unknown"
    place = 0
    while abs(number) >= 999.5 and place < len(prefixes) - 1:
        number, place = number / 1000, place + 1
    return f"{number:.3g} {prefixes[place]}{unit}"
