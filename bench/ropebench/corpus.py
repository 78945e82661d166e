"""Where long text comes from: the hub, a folder, or documentation that is installed anyway.

    installed            the manual that comes with Python itself (pydoc_data.topics); its label names the version
    noise                the repeated noise line of the passkey papers
    FOLDER               *.txt *.md *.tex (one document each) and *.jsonl (field `text`, or `input_ids`), by name
    NAME=FOLDER          the same, labelled NAME; a NAME known in corpora.toml adds source and licence and is verified
    hub:ID[/FILE.jsonl][@REVISION]   a data set on the hub, raw text or pre-tokenised
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ropebench.errors import UsageError

_SUFFIXES = (".txt", ".md", ".tex", ".jsonl")
_ABOUT_THE_FOLDER = {"readme", "copying", "license", "licence", "notice"}

# RULER's noise line (NVIDIA/RULER, Apache-2.0; first used by Landmark Attention, arXiv:2305.16300).
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."

# The raw test documents behind the published Proof-pile numbers (script-free mirror).
PROOFPILE = "hub:dwzhu/PoSE-Datasets/proof-pile/test.jsonl"


@dataclass(frozen=True)
class Document:
    """One document: its text, or its ids where the source is pre-tokenised (`tokenizer` then names whose ids)."""

    name: str
    text: str = field(repr=False, default="")
    ids: tuple[int, ...] | None = field(repr=False, default=None)

    @property
    def sha256(self) -> str:
        raw = self.text.encode() if self.ids is None else " ".join(map(str, self.ids)).encode()
        return hashlib.sha256(raw).hexdigest()


@dataclass(frozen=True)
class Corpus:
    """A named source of documents, in a fixed order. `identity` goes into the cell: two corpora with the same label
    and other contents are other cells."""

    label: str
    source: str
    read: Callable[[], Iterator[Document]] = field(repr=False)
    revision: str | None = None
    licence: str | None = None
    identity: str = ""

    def documents(self) -> Iterator[Document]:
        """The documents, one after the other, in the order that defines "the first n"."""
        return self.read()

    def describe(self) -> dict[str, Any]:
        """Label, source, revision, licence and identity, for the record (never a path of this machine)."""
        return {
            "label": self.label,
            "source": self.source,
            "revision": self.revision,
            "licence": self.licence,
            "identity": self.identity,
        }


def known_corpora() -> dict[str, dict[str, Any]]:
    """Corpora whose source, licence and file hashes are known by name."""
    return tomllib.loads(Path(__file__).with_name("corpora.toml").read_text(encoding="utf-8"))


def open_corpus(word: str, offline: bool = False) -> Corpus:
    """The corpus a person means by `--docs WORD` (forms above).

    Raises UsageError for a folder that cannot be read or holds no document, files that are not what a known name
    promises, and a hub that cannot be reached (naming --docs installed; never a silent substitute).
    """
    if word == "installed":
        return _installed()
    if word == "noise":
        return Corpus("noise", "repeated noise line", lambda: iter([Document("noise", NOISE)]), identity="noise-1")
    if word.startswith("hub:"):
        return _hub(word, offline)
    name, equals, folder = word.partition("=")
    if not equals:
        name, folder = "", word
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise UsageError(
            f"--docs {word!r}: no such folder; allowed: a folder with {', '.join('*' + s for s in _SUFFIXES)}, "
            "NAME=FOLDER, 'installed', 'noise', or hub:OWNER/NAME"
        )
    return _folder(name or path.resolve().name, path)


def _installed() -> Corpus:
    import platform
    from pydoc_data import topics

    parts = [topics.topics[key] for key in sorted(topics.topics)]
    text = "\n\n".join(part.strip() for part in parts) + "\n"
    return Corpus(
        f"python-docs-{platform.python_version()}",
        "pydoc_data.topics of Python's standard library",
        lambda: iter([Document("python-language-reference", text)]),
        revision=platform.python_version(),
        licence="PSF-2.0",
        identity=hashlib.sha256(text.encode()).hexdigest()[:16],
    )


def _folder(name: str, path: Path) -> Corpus:
    try:
        files = sorted(
            f for f in path.iterdir() if f.suffix.lower() in _SUFFIXES and f.stem.lower() not in _ABOUT_THE_FOLDER
        )
        hashes = {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
    except OSError as error:
        raise UsageError(f"--docs: cannot read folder {path.name!r}: {error.strerror}") from None
    if not files:
        raise UsageError(f"--docs: folder {path.name!r} holds no {', '.join('*' + s for s in _SUFFIXES)}")
    about = known_corpora().get(name, {})
    wrong = [f for f, digest in about.get("sha256", {}).items() if f in hashes and hashes[f] != digest]
    if wrong:
        raise UsageError(
            f"--docs {name}: {', '.join(wrong)} is not the file that {name!r} stands for (revision "
            f"{about['revision']}); give the folder another name, or fetch {about['source']}"
        )

    def read() -> Iterator[Document]:
        for file in files:
            yield from _documents_of(file)

    return Corpus(
        f"{name}@{str(about['revision'])[:8]}" if about else name,
        about.get("source", f"folder {path.resolve().name}"),
        read,
        about.get("revision"),
        about.get("licence"),
        hashlib.sha256(json.dumps(sorted(hashes.items())).encode()).hexdigest()[:16],
    )


def _documents_of(file: Path) -> Iterator[Document]:
    if file.suffix.lower() != ".jsonl":
        yield Document(file.name, file.read_text(encoding="utf-8", errors="replace"))
        return
    with file.open(encoding="utf-8") as handle:
        for number, line in enumerate(handle, 1):
            if line.strip():
                try:
                    yield _row(f"{file.name}:{number}", json.loads(line))
                except json.JSONDecodeError as error:
                    raise UsageError(f"{file.name}:{number}: not JSON ({error.msg})") from None


def _row(name: str, row: Any) -> Document:
    """A data set row: `text`, or pre-tokenised `input_ids`."""
    if isinstance(row, dict) and isinstance(row.get("text"), str):
        return Document(name, row["text"])
    if isinstance(row, dict) and isinstance(row.get("input_ids"), list):
        return Document(name, ids=tuple(int(i) for i in row["input_ids"]))
    raise UsageError(f"{name}: a document needs a field 'text' (or 'input_ids')")


def _hub(word: str, offline: bool) -> Corpus:
    rest, _, revision = word.removeprefix("hub:").partition("@")
    match = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:/([\w./-]+\.jsonl))?", rest)
    if not match or ".." in rest:
        raise UsageError(f"--docs {word!r}: write hub:OWNER/NAME, hub:OWNER/NAME/FILE.jsonl, with @REVISION if wanted")
    repo, file = match.group(1), match.group(2)
    try:
        rows, commit = _fetch(repo, file, revision or "main", offline)
    except Exception as error:  # the hub client raises many kinds; each means that the source did not answer
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"--docs {word!r}: cannot be read from the hub ({type(error).__name__}: {first}); use --docs installed "
            "(documentation on this machine) or --docs FOLDER"
        ) from None

    def read() -> Iterator[Document]:
        for number, row in enumerate(rows()):
            yield _row(f"{repo}:{number}", row)

    return Corpus(f"{repo.split('/')[1]}", word.partition("@")[0], read, commit, None, f"{repo}/{file or ''}@{commit}")


def _fetch(repo: str, file: str | None, revision: str, offline: bool) -> tuple[Callable[[], Iterator[Any]], str]:
    """Rows of a hub data set and the commit they come from."""
    from huggingface_hub import HfApi, hf_hub_download

    if file:
        local = Path(hf_hub_download(repo, file, repo_type="dataset", revision=revision, local_files_only=offline))
        commit = local.parts[local.parts.index("snapshots") + 1] if "snapshots" in local.parts else revision

        def lines() -> Iterator[Any]:
            with local.open(encoding="utf-8") as handle:
                for line in handle:
                    if line.strip():
                        yield json.loads(line)

        return lines, commit
    import datasets

    commit = revision if offline else str(HfApi().dataset_info(repo, revision=revision).sha)
    splits = datasets.load_dataset(repo, revision=commit)
    split = "test" if "test" in splits else next(iter(splits))
    return lambda: iter(splits[split]), commit


def sentences(text: str) -> list[int]:
    """Character offsets where a sentence of `text` may end: after . ! or ? and white space, or a blank line; 0 and
    the end included. No download and no model: good enough to place a needle between sentences."""
    ends = {m.end() for m in re.finditer(r"[.!?][\"')\]]*\s+|\n\s*\n", text)}
    return sorted({0, len(text), *ends})
