"""The RULER part of `make bench`: seconds to make samples of each of the 13 tasks, and to read them from the cache.

A run of the tool makes or reads them in the same way. Both times begin with a tokenizer just loaded, and a cache folder
of their own. SQuAD and HotpotQA are stood in for by files of their layout and size of paragraphs, with text of Python's
manual.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

from measuring.figure import AnswersDiffer, Figure

LENGTH = 4096


def ruler(samples: int, model: str = "smollm2-135m") -> list[Figure]:
    """Two figures: the slowest task to make, and the slowest to read, in seconds for 500 samples; where fewer are made
    the time after the first is taken as that many times longer. `row` has both for every task.

    Raises AnswersDiffer where the samples that come back are not those that were made.
    """
    from ropebench.corpus import open_corpus
    from ropebench.model import card, find, load_tokenizer
    from ropebench.prompt import Encoder
    from ropebench.registry import Registry
    from ropebench.ruler import TASKS
    from ropebench.sample_cache import kept_examples

    source, registry, corpus = card(find(model)), Registry.load(), open_corpus("installed")
    made, read = dict[str, float](), dict[str, float]()
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {"ROPEBENCH_CACHE": folder}):
        questions(Path(folder), next(corpus.documents()).text)
        for name in TASKS:
            data = f":data={folder}" if name.startswith("qa_") else ""
            task = registry.build("task", f"ruler/{name}{data}")[0].resolved([LENGTH])
            found = []
            for times in (made, read):
                encoder = Encoder(load_tokenizer(source))
                stream = kept_examples(task, LENGTH, encoder, 0, corpus if task.needs_corpus else None)
                times[name], examples = timed(islice(stream, samples))
                found.append(examples)
            if found[0] != found[1] or len(found[0]) != samples or any(example.skip for example in found[0]):
                raise AnswersDiffer(f"ruler/{name}: the samples read are not the {samples} whole ones that were made")
    what = f"500 samples of a RULER task at {LENGTH}, the slowest of {len(TASKS)}:"
    return [
        Figure("ruler", f"{what} making", max(made.values()), 20.0, "<", "s", about(made, samples)),
        Figure("kept", f"{what} reading from the cache", max(read.values()), 2.0, "<", "s", about(read, samples)),
    ]


def timed(stream: Iterator[Any]) -> tuple[float, list[Any]]:
    """Seconds that 500 samples of a stream take, from its beginning, and the samples that it has."""
    began = time.perf_counter()
    first = [*islice(stream, 1)]
    beginning = time.perf_counter() - began
    rest = [*stream]
    return beginning + (time.perf_counter() - began - beginning) / max(len(rest), 1) * 499, [*first, *rest]


def about(times: dict[str, float], samples: int) -> dict[str, Any]:
    return {"samples_timed": samples, "seconds_of_500": times}


def questions(folder: Path, text: str) -> None:
    """dev-v2.0.json and hotpot_dev_distractor_v1.json: 600 questions each, over 600 paragraphs of about 120 words."""
    words = cycle(text.split())
    paragraphs = [f"Note {i} begins. " + " ".join(islice(words, 90 + 7 * (i % 9))) + "." for i in range(600)]
    squad = [
        {
            "title": f"Article {a}",
            "paragraphs": [
                {
                    "context": paragraphs[i],
                    "qas": [{"question": f"What does note {i} say?", "answers": [{"text": str(i)}]}],
                }
                for i in range(20 * a, 20 * a + 20)
            ],
        }
        for a in range(30)
    ]
    hotpot = [
        {
            "_id": f"row-{i}",
            "question": f"What do notes {i} and {(i + 1) % 600} say?",
            "answer": str(i),
            "context": [[f"Note {n % 600}", [paragraphs[n % 600]]] for n in range(i, i + 10)],
            "supporting_facts": [[f"Note {i}", 0], [f"Note {(i + 1) % 600}", 0]],
        }
        for i in range(600)
    ]
    (folder / "dev-v2.0.json").write_text(json.dumps({"data": squad}), encoding="utf-8")
    (folder / "hotpot_dev_distractor_v1.json").write_text(json.dumps(hotpot), encoding="utf-8")
