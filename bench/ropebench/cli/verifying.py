"""`ropebench verify`: whether a results folder is what it says."""

from __future__ import annotations

import argparse
import json

from ropebench.errors import UsageError


def verify(options: argparse.Namespace, words: list[str]) -> int:
    """0 where all is in order, 1 where something is wrong."""
    from ropebench import store
    from ropebench.report.repeats import disagreements
    from ropebench.verify import as_object, verdict

    found = store.everything(options.results)
    if not (found.records or found.rows or found.unread):
        raise UsageError(f"no records in {options.results!r}; measure something first: ropebench run --help")
    seen = verdict(found)
    again = [] if seen.fatal else disagreements(record for _, record in found.records)[0]
    if options.json:
        print(json.dumps({**as_object(seen), "repeats": again}, ensure_ascii=False))
        return 1 if seen.fatal else 0
    for title, several in (("wrong", seen.fatal), ("to know", [*seen.notes, *again])):
        if several:
            print(f"{title}:")
            print("".join(f"  {one}\n" for one in several), end="")
    looked = f"{seen.records} records with {seen.rows} sample rows"
    if seen.fatal:
        print(f"{len(seen.fatal)} problems in {looked}")
        return 1
    print(f"in order: {looked}; every number follows from its rows, and {seen.tables} rotary tables are today's")
    return 0
