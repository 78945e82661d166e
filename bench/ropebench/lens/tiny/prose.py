"""Natural text that comes with Python: its manual, and the docstrings of its standard library.

The first part of the manual is kept out of training, so that perplexity on `--docs installed` is of unseen text: at the
16-fold window (8,192 tokens, about 25,000 characters) and well past it. The manual says many things under several
headings, so every paragraph that stands in that part, too, is left out of the rest.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ropebench.corpus import open_corpus

HELD_OUT = 60_000  # characters of the manual

_SHORTEST = 80  # characters of a docstring that is worth reading, and of a paragraph that is not just a heading
# Tests and tools: long, and not about the language. pydoc_data is the manual itself.
_LEFT_OUT = {"ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "test", "tests", "turtledemo"}


@dataclass(frozen=True)
class Prose:
    """Training text and held-out text, with what they are."""

    train: str
    held_out: str
    source: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256((self.train + "\0" + self.held_out).encode()).hexdigest()


def installed() -> Prose:
    """The text of the running Python. Another version has another one; its hash is in every checkpoint."""
    corpus = open_corpus("installed")
    manual = "\n\n".join(document.text for document in corpus.documents())
    cut = manual.index("\n\n", HELD_OUT)
    rest = "\n\n".join([manual[cut:].strip(), *docstrings(Path(sysconfig.get_path("stdlib")))])
    source = f"{corpus.label} and the docstrings of its standard library"
    return Prose(without_repeats(rest, manual[:cut]) + "\n", manual[:cut], source)


def without_repeats(text: str, held_out: str) -> str:
    """`text` without the paragraphs that stand in `held_out`, and each of its own once, white space aside."""
    seen = {" ".join(paragraph.split()) for paragraph in held_out.split("\n\n")}
    kept = []
    for paragraph in text.split("\n\n"):
        words = " ".join(paragraph.split())
        if len(words) < _SHORTEST or words not in seen:
            seen.add(words)
            kept.append(paragraph)
    return "\n\n".join(kept)


def docstrings(folder: Path) -> Iterator[str]:
    """Docstrings of the Python files below a folder, by path and place."""
    for file in sorted(folder.rglob("*.py")):
        if _LEFT_OUT & set(file.relative_to(folder).parts):
            continue
        try:
            tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):  # a few files are there to be broken
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                if len(text) >= _SHORTEST:
                    yield text
