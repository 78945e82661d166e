"""Where long text comes from: the hub, a folder, or documentation that is installed anyway.

- `installed`: the manual that comes with Python itself (pydoc_data.topics); its label names the version
- `noise`: the repeated noise line of the passkey papers
- `FOLDER`: its *.txt *.md *.tex (one document each) and *.jsonl (a line each: `text`, or `input_ids`), by name; not its
  subfolders, hidden files, README, COPYING, LICENSE and NOTICE
- `NAME=FOLDER`: the same, labelled NAME; a NAME of corpora.toml is exactly the files listed there, each verified
- `hub:OWNER/NAME[/FILE.jsonl][@REVISION]`: a data set on the hub, raw text or pre-tokenised
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ropebench.errors import UsageError, nearest
from ropebench.record import HALVES

_SUFFIXES = (".txt", ".md", ".tex", ".jsonl")
_ABOUT_THE_FOLDER = {"readme", "copying", "license", "licence", "notice"}

# RULER's noise line (NVIDIA/RULER, Apache-2.0; first used by Landmark Attention, arXiv:2305.16300, Apache-2.0).
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
    name, _, folder = ("", "", word) if _is_folder(word) else word.partition("=")
    path = Path(os.path.expanduser(folder))
    if not _is_folder(folder):
        near = nearest(word, ("installed", "noise"))
        raise UsageError(
            f"--docs {word!r}: no such folder; {f'did you mean {near!r}? ' if near else ''}allowed: a folder with "
            f"{', '.join('*' + s for s in _SUFFIXES)}, NAME=FOLDER, 'installed', 'noise', or hub:OWNER/NAME"
        )
    return _folder(name or path.resolve().name or "folder", path, known_corpora().get(name, {}))


def _installed() -> Corpus:
    import platform

    try:
        from pydoc_data import topics
    except ImportError:
        raise UsageError(
            "--docs installed: this Python comes without its manual (pydoc_data); use --docs FOLDER"
        ) from None

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


def _is_folder(word: str) -> bool:
    return os.path.isdir(os.path.expanduser(word))  # unlike pathlib's, never raises, whatever the word


def _folder(name: str, path: Path, about: Mapping[str, Any]) -> Corpus:
    expected: dict[str, str] = about.get("sha256", {})
    try:
        files = sorted(f for f in path.iterdir() if (f.name in expected if expected else _is_document(f)))
        for file in files:
            _check_inside(file, path)
    except OSError as error:
        raise UsageError(f"--docs: cannot read folder {path.name!r}: {error.strerror}") from None
    if not files and not expected:
        raise UsageError(
            f"--docs: folder {path.name!r} holds no {', '.join('*' + s for s in _SUFFIXES)} (subfolders are not read)"
        )
    hashes = {file.name: _sha256(file) for file in files}
    wrong = [f"{f} is {'another file' if f in hashes else 'missing'}" for f in expected if hashes.get(f) != expected[f]]
    if wrong:
        raise UsageError(
            f"--docs {name}=FOLDER: {', '.join(wrong)} (revision {about['revision']}); give the folder another name, "
            f"or fetch {about['source']} at that revision"
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


def _is_document(file: Path) -> bool:
    about_the_folder = file.stem.lower() in _ABOUT_THE_FOLDER or file.name.startswith(".")
    return file.suffix.lower() in _SUFFIXES and not about_the_folder and not file.is_dir()


def _check_inside(file: Path, folder: Path) -> None:
    """Raise UsageError for what is no plain file (a pipe would never end), and for a link that leads out of the folder,
    other than to the hub cache's own blobs."""
    real, home = file.resolve(), folder.resolve()
    roots = [home, *(up.parent / "blobs" for up in home.parents if up.name == "snapshots")]
    if real.exists() and not (real.is_file() and any(real.is_relative_to(root) for root in roots)):
        raise UsageError(
            f"--docs: {file.name} in {folder.name!r} is no file of this folder (a link, or a device); copy it"
        )


def _sha256(file: Path) -> str:
    try:
        with file.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"--docs: cannot read {file.name}: {error.strerror}") from None


def _documents_of(file: Path, name: str = "") -> Iterator[Document]:
    """A file's documents; of a jsonl file one line is held at a time, whatever its size."""
    name = name or file.name
    try:
        with file.open(encoding="utf-8-sig") as handle:
            if file.suffix.lower() != ".jsonl":
                yield Document(name, handle.read())
                return
            for number, line in enumerate(handle, 1):
                if line.strip():
                    yield _row(f"{name}:{number}", json.loads(line))
    except UnicodeDecodeError as error:
        raise UsageError(f"--docs: {name} is not UTF-8 ({error.reason}); convert it, for example with iconv") from None
    except (ValueError, RecursionError) as error:  # a number of 5000 digits, a thousand lists in one another
        raise UsageError(f"--docs: {name}:{number}: not JSON ({getattr(error, 'msg', error)})") from None
    except OSError as error:
        raise UsageError(f"--docs: cannot read {name}: {error.strerror}") from None


def _row(name: str, row: Any) -> Document:
    """A data set row: `text`, or else pre-tokenised `input_ids`; other fields (`meta` …) are left out."""
    text, ids = (row.get("text"), row.get("input_ids")) if isinstance(row, dict) else (None, None)
    if isinstance(text, str):
        if HALVES.search(text):
            raise UsageError(f"--docs: {name}: its text holds half a character (a lone surrogate); mend the file")
        return Document(name, text)
    if isinstance(ids, list) and all(type(i) is int and i >= 0 for i in ids):
        return Document(name, ids=tuple(ids))
    raise UsageError(f"--docs: {name}: a document needs a field 'text' (a string), or 'input_ids' (whole numbers)")


def _hub(word: str, offline: bool) -> Corpus:
    rest, _, revision = word.removeprefix("hub:").partition("@")
    match = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:/([\w./-]+\.jsonl))?", rest)
    if not match or ".." in rest:
        raise UsageError(f"--docs {word!r}: write hub:OWNER/NAME, hub:OWNER/NAME/FILE.jsonl, with @REVISION if wanted")
    repo, file = match.group(1), match.group(2)
    try:
        read, commit = _fetch(repo, file, revision or None, offline)
    except Exception as error:  # the hub client raises many kinds; each means that the source did not answer
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"--docs {word!r}: cannot be read from the hub ({type(error).__name__}: {first}); use --docs installed "
            "(documentation on this machine) or --docs FOLDER"
        ) from None
    label = f"{Path(rest).with_suffix('').as_posix() if file else repo}@{commit[:8]}"
    return Corpus(label, f"hub:{rest}", read, commit, None, f"{repo}/{file or ''}@{commit}")


def _fetch(
    repo: str, file: str | None, revision: str | None, offline: bool
) -> tuple[Callable[[], Iterator[Document]], str]:
    """Documents of a hub data set and the commit they come from; both lie in the hub's own cache afterwards."""
    from huggingface_hub import hf_hub_download, snapshot_download

    if file:
        local = Path(hf_hub_download(repo, file, repo_type="dataset", revision=revision, local_files_only=offline))
        commit = local.parts[-1 - len(Path(file).parts)]  # …/snapshots/COMMIT/FILE
        return lambda: _documents_of(local, f"{repo}/{file}"), commit
    import datasets

    folder = Path(snapshot_download(repo, repo_type="dataset", revision=revision, local_files_only=offline))
    splits = datasets.load_dataset(str(folder))
    rows = splits["test" if "test" in splits else next(iter(splits))]  # memory-mapped: read row by row

    def read() -> Iterator[Document]:
        for number, row in enumerate(rows):
            yield _row(f"{repo}:{number}", row)

    return read, folder.name


def texts(task: str, corpus: Corpus, enough: int, between: int = 0) -> list[str]:
    """The first documents of a corpus, whole, until they have `enough` characters; `between` further ones are counted
    for each, for what stands between them.

    Raises UsageError, in the name of the task, for documents that are pre-tokenised, and where there is no text.
    """
    found: list[str] = []
    characters = 0
    for document in corpus.documents():
        if document.ids is not None:
            raise UsageError(
                f"{task}: {corpus.label} is pre-tokenised; a haystack needs text (such as --docs installed)"
            )
        found.append(document.text)
        characters += len(document.text) + between
        if characters >= enough:
            break
    if not "".join(found)[:enough].strip():
        raise UsageError(f"{task}: the documents of {corpus.label} hold no text; give other --docs, such as installed")
    return found


def sentences(text: str) -> list[int]:
    """Character offsets where a sentence of `text` may end: after . ! or ? and white space, after 。！？, or a blank
    line; 0 and the end included. No download and no model: good enough to place a needle between sentences."""
    ends = {m.end() for m in re.finditer(r"[.!?][\"')\]]*\s+|[。！？][”’」』）]*\s*|\n\s*\n", text)}
    return sorted({0, len(text), *ends})
