"""SQuAD and HotpotQA from a folder or from the hub."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ropebench.errors import UsageError
from ropebench.ruler.questions import Question, Questions


@dataclass(frozen=True)
class Source:
    """Where a data set is: the file its authors publish, the hub id people know, and the file's name pattern there."""

    title: str
    file: str
    hub: str
    pattern: str


SQUAD = Source("SQuAD v2.0", "dev-v2.0.json", "rajpurkar/squad_v2", "validation*.parquet")
HOTPOT = Source(
    "HotpotQA", "hotpot_dev_distractor_v1.json", "hotpotqa/hotpot_qa", "distractor/validation*.parquet"
)  # fmt: skip


def file_of(name: str, source: Source, data: str, offline: bool = False) -> Path:
    """The data file: in the folder `data`, or of the hub data set `data` (OWNER/NAME, with @REVISION if wanted), which
    `offline` takes from this machine only.

    Raises UsageError, naming the parameter, where it is neither or cannot be reached.
    """
    folder = Path(os.path.expanduser(data))
    if not os.path.isdir(folder):
        folder = _fetched(name, source, data, offline)
    found = sorted(folder.rglob(source.file)) or sorted(folder.rglob(source.pattern))
    if not found:
        on_hub = f" (nor {source.pattern}, as on the hub)" if source.pattern != source.file else ""
        raise UsageError(f"{name}: data={folder.name!r} holds no {source.file}{on_hub}")
    if len(found) > 1:
        raise UsageError(f"{name}: data={folder.name!r} holds {len(found)} files like {found[0].name}; name one folder")
    return found[0]


@cache
def _fetched(name: str, source: Source, data: str, offline: bool) -> Path:
    advice = f"get {source.file} and write {name}:data=FOLDER"
    match = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", data)
    if not match or data.startswith("."):
        raise UsageError(f"{name}: data={data!r} is no folder and no hub id (OWNER/NAME); {advice}")
    from huggingface_hub import snapshot_download

    patterns = [f"*{source.file}", f"*{source.pattern}"]
    try:
        return Path(
            snapshot_download(
                match[1], repo_type="dataset", revision=match[2], allow_patterns=patterns, local_files_only=offline
            )
        )
    except Exception as error:  # the hub client raises many kinds; each means that the source did not answer
        if offline:
            raise UsageError(
                f"{name}: {source.title} ({data}) is not on this machine, and --offline asks no hub; {advice} (in "
                "ropebench show: --data FOLDER)"
            ) from None
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"{name}: {source.title} cannot be read from the hub ({data}: {type(error).__name__}: {first}); {advice}"
        ) from None


@cache
def sha256_of(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _rows(name: str, file: Path) -> Any:
    """The file's content: the JSON as published, or a parquet file's rows."""
    try:
        if file.suffix == ".json":
            return json.loads(file.read_text(encoding="utf-8"))
        from pyarrow import parquet  # type: ignore[import-untyped]

        return parquet.read_table(file).to_pylist()
    except (OSError, ValueError) as error:
        raise UsageError(f"{name}: {file.name} cannot be read ({type(error).__name__}: {error})") from None


@cache
def squad(name: str, file: Path) -> Questions:
    """The answerable questions of SQuAD v2.0; a document is a paragraph, related are its article's others. All
    annotators' answers are kept, as the original does."""
    rows = _rows(name, file)
    parsed = _parsed(name, file, lambda: list(_squad_published(rows) if isinstance(rows, dict) else _squad_hub(rows)))
    documents, number = _numbered(context for _, context, _, _ in parsed)
    articles: dict[str, dict[int, None]] = {}
    for article, context, _, _ in parsed:
        articles.setdefault(article, {})[number[context]] = None
    questions = tuple(
        Question(
            query,
            tuple(answers),
            (number[context],),
            (number[context],),
            tuple(n for n in articles[article] if n != number[context]),
            article,
        )
        for article, context, query, answers in parsed
        if answers
    )
    return _complete(name, file, questions, documents)


def _squad_published(rows: Mapping[str, Any]) -> Iterable[tuple[str, str, str, list[str]]]:
    for article in rows["data"]:
        for paragraph in article["paragraphs"]:
            yield article["title"], paragraph["context"], "", []  # a document even where no question is about it
            for asked in paragraph["qas"]:
                answers = [] if asked.get("is_impossible") else [answer["text"] for answer in asked["answers"]]
                yield article["title"], paragraph["context"], asked["question"], answers


def _squad_hub(rows: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, str, str, list[str]]]:
    for row in rows:
        yield row["title"], row["context"], row["question"], list(row["answers"]["text"])


@cache
def hotpot(name: str, file: Path) -> Questions:
    """HotpotQA's questions; a document is a title and its paragraph. Gold are the ones its authors mark as supporting;
    the others that come with a question are its distractors."""
    rows = _rows(name, file)
    parsed = _parsed(name, file, lambda: [_hotpot_row(row) for row in rows])
    documents, number = _numbered(text for _, _, _, texts, _ in parsed for text in texts)
    questions = []
    for article, query, answer, texts, supporting in parsed:
        context = tuple(dict.fromkeys(number[text] for text in texts))
        gold = tuple(dict.fromkeys(number[text] for text in texts if text.partition("\n")[0] in supporting))
        questions.append(Question(query, (answer,), gold or context, context, (), article))
    return _complete(name, file, tuple(questions), documents)


def _hotpot_row(row: Mapping[str, Any]) -> tuple[str, str, str, list[str], set[str]]:
    if isinstance(row["context"], dict):  # the hub's layout: a column of titles and a column of sentences
        context = list(zip(row["context"]["title"], row["context"]["sentences"], strict=True))
        supporting = set(row["supporting_facts"]["title"])
    else:
        context = row["context"]
        supporting = {title for title, _ in row.get("supporting_facts", [])}
    texts = [f"{title}\n{''.join(sentences)}" for title, sentences in context]
    return str(row.get("_id", row.get("id"))), row["question"], row["answer"], texts, supporting


def _parsed(name: str, file: Path, read: Callable[[], list[Any]]) -> list[Any]:
    try:
        return read()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{name}: {file.name} is not laid out as published ({type(error).__name__}: {error})"
        ) from None


def _numbered(texts: Iterable[str]) -> tuple[tuple[str, ...], dict[str, int]]:
    documents = tuple(sorted(set(texts)))
    return documents, {text: number for number, text in enumerate(documents)}


def _complete(name: str, file: Path, questions: tuple[Question, ...], documents: tuple[str, ...]) -> Questions:
    if not questions:
        raise UsageError(f"{name}: {file.name} holds no question with an answer")
    return Questions(questions, documents, sha256_of(file))
