"""Every sentence of the README's section "What we guarantee" names a test, and the test is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECTION = (ROOT / "README.md").read_text(encoding="utf-8").split("## What we guarantee\n")[1].split("\n## ")[0]


def defined_in(file: str) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_guarantee_names_a_test_that_exists() -> None:
    promises = SECTION.split("\n- ")[1:]
    assert len(promises) > 10
    for promise in promises:
        named = re.findall(r"`(tests/\w+\.py)::(\w+)`", promise)
        assert named, promise
        assert [name for file, name in named if name not in defined_in(file)] == [], promise
