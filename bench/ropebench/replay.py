"""One stored sample, made again from its record: the prompt that the model was fed, beside what it answered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from ropebench.corpus import Corpus, open_corpus
from ropebench.errors import UsageError
from ropebench.model import card, find, load_tokenizer
from ropebench.prompt import Encoder
from ropebench.record import Json
from ropebench.registry import Registry
from ropebench.run import prompt_sha256
from ropebench.sample_cache import kept_examples
from ropebench.store import newest_ok, read, samples
from ropebench.task import Example, Task


def find_record(results: str | Path, cell: str) -> Json:
    """The counting record of the cell whose id begins with `cell`. Raises UsageError when none or several do."""
    records = [r for r in newest_ok(read(results)) if r["cell_id"].startswith(cell)]
    if len(records) != 1:
        what = "no cell" if not records else f"{len(records)} cells"
        raise UsageError(f"{what} in {Path(results).name!r} with an id that begins with {cell!r}; see report --json")
    return records[0]


def find_row(results: str | Path, record: Json, index: int) -> Json:
    """A cell's sample row by index. Raises UsageError with the indexes there are."""
    rows = {row["index"]: row for row in samples(results, record["cell_id"])}
    if index not in rows:
        there = f"0 to {max(rows)}" if rows else "none"
        raise UsageError(f"cell {record['cell_id']} has no sample {index}; stored: {there}")
    return rows[index]


def prompt_again(
    record: Json,
    row: Json,
    docs: str | None,
    plugins: Sequence[str],
    models: str | None,
    data: str | None = None,
) -> tuple[Example, Encoder]:
    """The example of a sample row, made again; its prompt's hash must be the stored one.

    Raises UsageError when the corpus or the data of the task is not here (`--docs` and `--data` name them), is another
    one than the record's, or the prompt comes out differently.
    """
    condition = record["condition"]
    try:
        task, code = _task(record, plugins, data)
        tokenizer = load_tokenizer(card(find(record["model"]["id"], models)))
        encoder = Encoder(tokenizer, condition["bos"], condition["chat_template"] == "on")
        corpus = _corpus(record, docs)
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        raise UsageError(f"the record's sample cannot be made again ({type(error).__name__}: {error})") from None
    try:
        example = next(
            kept_examples(task, condition["length"], encoder, condition["seed"], corpus, code, row["index"]), None
        )
    except UsageError as error:
        here = " (here: --data FOLDER)" if _reads_data(type(task)) else ""
        raise UsageError(f"{error}{here}") from None
    if example is None or prompt_sha256(example) != row["prompt_sha256"]:
        raise UsageError("the prompt made now is not the stored one (other documents, tokenizer or task version)")
    return example, encoder


def _reads_data(cls: type[Task]) -> bool:
    """Whether a task reads files of its own, from where its parameter `data` says."""
    return any(f.name == "data" for f in fields(cls))


def _task(record: Json, plugins: Sequence[str], data: str | None) -> tuple[Task, str | None]:
    """The task of a record, with the SHA-256 of the plug-in file it comes from."""
    name = record["task"]["name"]
    # A record names a task; only a person names a file or folder of them, which is run as code.
    if name.startswith(("lm_eval:", "lm_eval/")) and re.search(r"[/\\]|\.ya?ml$|^\.", name[len("lm_eval:") :]):
        raise UsageError(f"the record's task {name!r} is a file; ropebench runs none that a record names")
    entry = Registry.load(plugins).entry("task", name)
    if entry.cls.version != record["task"]["version"]:
        raise UsageError(
            f"task {entry.name!r} is at version {entry.cls.version}, the record at {record['task']['version']}"
        )
    known = {f.name for f in fields(entry.cls) if f.compare}  # no folder of this machine
    params = {k: tuple(v) if isinstance(v, list) else v for k, v in record["task"]["params"].items() if k in known}
    if data is not None:
        if not _reads_data(entry.cls):
            raise UsageError(f"--data {data!r}: task {entry.name!r} reads no data of its own; leave it out")
        params["data"] = data
    return entry.cls(**params), entry.code


def _corpus(record: Json, docs: str | None) -> Corpus | None:
    about = record["task"]["corpus"]
    if about is None:
        return None
    word = docs or next((w for w in ("installed", "noise") if open_corpus(w).identity == about["identity"]), None)
    if word is None and about["source"].startswith("hub:"):
        word = f"{about['source']}@{about['revision']}"
    if word is None:
        raise UsageError(f"the text of {about['label']} ({about['source']}) is not here; name it with --docs")
    found = open_corpus(word)
    if found.identity != about["identity"]:
        raise UsageError(f"--docs {word}: not the documents of this cell ({about['label']})")
    return found
