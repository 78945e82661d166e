"""What the tests of lm-eval share: tiny models in folders, lm-eval's evaluator, and the same measured by ropebench.

lm-eval's evaluator and its Hugging Face model class are the real ones, without the index of its own tasks (it takes ten
seconds to read); the slow tests run the stock command.
"""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fakes import save_tiny, tokenizer, writer
from ropebench.lm_harness import task_folder
from ropebench.model import load
from ropebench.plan import make_plan
from ropebench.prompt import Encoder
from ropebench.registry import Registry
from ropebench.run import Stored, run_cells
from ropebench.sweep import Sweep

lm_eval = pytest.importorskip("lm_eval")

QUESTIONS: list[dict[str, Any]] = [
    {"q": f"How many legs have {i} and {i + 1} spiders?", "a": str(8 * (2 * i + 1)), "label": i % 3, "text": text}
    for i, text in enumerate(("One two three. Four, five six seven.", "The for statement", "def of a class.") * 3)
]


@cache
def folder(name: str = "bpe-bos", window: int = 512) -> str:
    """A random llama with one of the real tokenizers, trained on `window` tokens by its config."""
    return str(
        save_tiny(Path(tempfile.mkdtemp(prefix="tiny-")) / f"{name}-{window}", name, max_position_embeddings=window)
    )


def evaluated(model: Any, arguments: dict[str, Any], tasks: list[str], include: Any = None, **how: Any) -> Any:
    """lm-eval's results. `metadata` is what --metadata gives."""
    import lm_eval.models
    from lm_eval.tasks import TaskManager

    import ropebench.lm_harness.model  # noqa: F401

    known = {**arguments, **how.pop("metadata", {})}
    manager = TaskManager(include_defaults=False, include_path=str(include or task_folder()), metadata=known)
    given = {} if not isinstance(model, str) else {"model_args": arguments, "device": "cpu"}
    return lm_eval.simple_evaluate(model=model, tasks=tasks, task_manager=manager, bootstrap_iters=0, **given, **how)


def measured(tmp_path: Path, model: str, task: str, **sweep: Any) -> tuple[list[Any], list[Any]]:
    """Records and sample rows of `ropebench run`, cells and samples in order."""
    plan = make_plan(Sweep(model=model, tasks=(task,), **sweep))
    first = plan.cells[0]
    loaded = load(first.card, "cpu", "float32")
    out = writer(tmp_path / f"results-{len(list(tmp_path.iterdir()))}")
    records = run_cells(plan.cells, loaded, Stored(), out)
    (file,) = out.folder.glob("*.samples.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    order = [record["cell_id"] for record in records]
    return records, sorted(rows, key=lambda row: (order.index(row["cell_id"]), row["index"]))


def task_files(where: Path, **changes: dict[str, Any]) -> Path:
    """A folder with one YAML task per keyword over QUESTIONS; JSON is YAML."""
    where.mkdir(parents=True, exist_ok=True)
    data = where / "questions.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    for name, changed in changes.items():
        config = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(data), "train": str(data)}},
            "test_split": "test",
            "metadata": {"version": 1.0},
            **changed,
        }
        (where / f"{name}.yaml").write_text(json.dumps(config))
    return where


def task(word: str) -> Any:
    """The one task that a word stands for, as a plan resolves it."""
    registry = Registry.load()
    (one,) = registry.expanded("task", word)
    return registry.build("task", one)[0].resolved([256])


def examples(word: str, length: int = 256, name: str = "bpe-bos", **how: Any) -> list[Any]:
    """All its examples."""
    return list(task(word).examples(length, Encoder(tokenizer(name), **how), 0))


GENERATE = {
    "output_type": "generate_until",
    "doc_to_text": "Question: {{q}}\nAnswer:",
    "doc_to_target": "{{a}}",
    "generation_kwargs": {"until": ["\n", "."], "max_gen_toks": 6, "do_sample": False},
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}
CHOOSE = {
    "output_type": "multiple_choice",
    "doc_to_text": "{{q}}\nAnswer:",
    "doc_to_choice": ["one", "two words", "three more words"],
    "doc_to_target": "{{label}}",
    "metric_list": [
        {"metric": name, "aggregation": how, "higher_is_better": up}
        for name, how, up in (
            ("acc", "mean", True),
            ("acc_norm", "mean", True),
            ("brier_score", "brier_score", False),
            ("exact_match", "mean", True),
            ("mcc", "matthews_corrcoef", True),
        )
    ],
}
LIKELIHOOD = {
    "output_type": "loglikelihood",
    "doc_to_text": "{{q}}",
    "doc_to_target": " {{a}}",
    "metric_list": [
        {"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False},
        {"metric": "acc", "aggregation": "mean", "higher_is_better": True},
    ],
}
ROLLING = {
    "output_type": "loglikelihood_rolling",
    "doc_to_text": "",
    "doc_to_target": "{{text}}",
    "metric_list": [{"metric": "word_perplexity"}, {"metric": "byte_perplexity"}, {"metric": "bits_per_byte"}],
}
