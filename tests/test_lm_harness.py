"""ropebench's tasks inside lm-eval are ropebench's: the same prompts, the same scores, and nothing cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lm_eval_runs import evaluated, folder, measured
from ropebench.errors import UsageError
from ropebench.lm_harness import lm_eval_name, task_folder
from ropebench.registry import Registry

WINDOW = 512
ARGUMENTS = {"max_length": WINDOW}
ASKED = {"n": 2, "max_seq_lengths": [400, WINDOW], "docs": "installed"}


def rows_of(results: Any, task: str) -> dict[tuple[int, int], Any]:
    """lm-eval's samples by (length, sample)."""
    return {(row["doc"]["length"], row["doc"]["index"]): row for row in results["samples"][task]}


def scores_of(row: Any) -> dict[str, float]:
    """A sample's scores under ropebench's names."""
    return {name.partition("@")[0]: row[name] for name in row["metrics"]}


def test_every_registered_task_is_there_once() -> None:
    written = {file.stem for file in task_folder().glob("*.yaml")}
    assert written == {lm_eval_name(entry.name) for entry in Registry.load().of("task")}
    assert {"ropebench_niah", "ropebench_ruler_vt", "ropebench_arithmetic_copy", "ropebench_proofpile"} <= written


def plug_in(where: Path, more: int = 0) -> str:
    """The plug-in task of test_registry, whose samples are `more` tokens longer than asked."""
    source = Path(__file__).with_name("test_registry.py").read_text().split("TASK = '''")[1].split("'''")[0]
    file = where / "mine.py"
    file.write_text(source.replace("length + 1", f"length + {1 + more}"))
    return str(file)


def test_a_plug_in_task_is_there_too_and_makes_another_folder(tmp_path: Path) -> None:
    with_it = task_folder([plug_in(tmp_path)])
    assert (with_it / "ropebench_zeros.yaml").is_file()
    assert with_it != task_folder()
    asked = {"n": 2, "max_seq_lengths": [300]}
    results = evaluated(
        "ropebench", {"pretrained": folder(), **ARGUMENTS}, ["ropebench_zeros"], include=with_it, metadata=asked
    )
    assert results["n-samples"]["ropebench_zeros"]["effective"] == 2


def test_a_sample_that_is_longer_than_it_should_be_is_not_cut(tmp_path: Path) -> None:
    longer = task_folder([plug_in(tmp_path, 20)])
    arguments = {"pretrained": folder(), "max_length": 310}
    with pytest.raises(UsageError, match="sample 0 takes 320 tokens, but the model's window is 310"):
        evaluated("hf", arguments, ["ropebench_zeros"], include=longer, metadata={"n": 1, "max_seq_lengths": [300]})


@pytest.mark.parametrize(
    "name, task, sweep",
    [
        ("bpe-bos", "niah", {"methods": ("mrrope_pro",), "factor": 2.0}),
        ("bpe", "niah:variant=passkey", {"methods": ("dynamic_ntk",), "factor": 2.0}),
        ("bpe", "proofpile", {"methods": ("yarn:beta_fast=16",), "factor": 4.0}),
        ("word-bos", "arithmetic/copy", {"methods": ("pi",), "factor": 2.0}),
    ],
)
def test_our_model_on_our_tasks_is_ropebench_run(tmp_path: Path, name: str, task: str, sweep: dict[str, Any]) -> None:
    """Prompt hashes and every score, per sample; and the metrics over them."""
    model = folder(name)
    records, rows = measured(
        tmp_path, model, task, lengths=[400, WINDOW], n=2, docs="installed", baseline=False, **sweep
    )
    yaml = tmp_path / "mine"
    yaml.mkdir()
    shipped = task_folder() / f"{lm_eval_name(task.partition(':')[0])}.yaml"
    (yaml / "mine.yaml").write_text(f"include: {shipped}\ntask: mine\nropebench: {task}\n")
    arguments = {"pretrained": model, "method": sweep["methods"][0], "factor": sweep["factor"], **ARGUMENTS}
    called = "mine"
    results = evaluated("ropebench", arguments, [called], include=yaml, metadata=ASKED)
    theirs = rows_of(results, called)
    lengths = {record["cell_id"]: record["condition"]["length"] for record in records}
    assert len(theirs) == len(rows) > 0
    for row in rows:
        other = theirs[lengths[row["cell_id"]], row["index"]]
        assert other["doc"]["prompt_sha256"] == row["prompt_sha256"]
        scores = scores_of(other)
        assert row["scores"] == pytest.approx({key: scores[key] for key in row["scores"]}, rel=1e-6)
    for record in records:
        for metric, found in record["outcome"]["metrics"].items():
            value = results["results"][called][f"{metric}@{record['condition']['length']},none"]
            assert value == pytest.approx(found["value"], rel=1e-4)  # exp of a sum of many


@pytest.mark.parametrize("name", ["bpe-bos", "word"])
def test_lm_evals_own_model_gets_the_same_prompts_and_scores(tmp_path: Path, name: str) -> None:
    model = folder(name)
    tasks = ["ropebench_niah", "ropebench_proofpile"]
    stock = evaluated("hf", {"pretrained": model, **ARGUMENTS}, tasks, metadata=ASKED)
    for task in tasks:
        records, rows = measured(
            tmp_path, model, task.removeprefix("ropebench_"), lengths=[400, WINDOW], n=2, docs="installed"
        )
        lengths = {record["cell_id"]: record["condition"]["length"] for record in records}
        theirs = rows_of(stock, task)
        assert len(theirs) == len(rows)
        for row in rows:
            other = theirs[lengths[row["cell_id"]], row["index"]]
            assert other["doc"]["prompt_sha256"] == row["prompt_sha256"]
            scores = scores_of(other)
            assert row["scores"] == pytest.approx({key: scores[key] for key in row["scores"]}, rel=1e-4)
            if row["output"] is not None:
                assert other["resps"][0][0] == row["output"]


def test_what_lm_evals_model_is_fed_are_the_samples_own_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULT 35: one BOS, at index 0, and FAULT 33: the ids that were counted are the ids that are fed."""
    from lm_eval.models.huggingface import HFLM

    from ropebench.record import ids_sha256

    fed: list[list[int]] = []
    plain = HFLM._model_generate

    def look(self: Any, context: Any, **how: Any) -> Any:
        fed.extend(context.tolist())
        return plain(self, context, **how)

    monkeypatch.setattr(HFLM, "_model_generate", look)
    model = folder("bpe-bos")
    for chat in (False, True):
        fed.clear()
        results = evaluated("hf", {"pretrained": model, **ARGUMENTS}, ["ropebench_niah"], apply_chat_template=chat,
                            fewshot_as_multiturn=chat, metadata={"n": 2, "docs": "installed"})  # fmt: skip
        assert {ids_sha256(ids) for ids in fed} == {
            r["doc"]["prompt_sha256"] for r in results["samples"]["ropebench_niah"]
        }
        assert all(ids[0] == 0 and ids.count(0) == 1 for ids in fed)
        assert all(len(ids) <= WINDOW - 32 for ids in fed)


def test_a_chat_template_gives_the_prompts_of_ropebench_run(tmp_path: Path) -> None:
    model = folder("bpe-bos")
    results = evaluated("ropebench", {"pretrained": model, **ARGUMENTS}, ["ropebench_niah"], apply_chat_template=True,
                        metadata={"n": 2, "docs": "installed"})  # fmt: skip
    _, rows = measured(tmp_path, model, "niah", lengths=[WINDOW], n=2, docs="installed", chat_template="on")
    assert [row["doc"]["prompt_sha256"] for row in results["samples"]["ropebench_niah"]] == [
        row["prompt_sha256"] for row in rows
    ]


def test_a_score_that_needs_single_tokens_is_given_by_our_model_alone() -> None:
    asked = {"n": 1, "max_seq_lengths": [400], "docs": "installed"}
    ours = evaluated(
        "ropebench", {"pretrained": folder("bpe-bos"), **ARGUMENTS}, ["ropebench_arithmetic_copy"], metadata=asked
    )
    stock = evaluated(
        "hf", {"pretrained": folder("bpe-bos"), **ARGUMENTS}, ["ropebench_arithmetic_copy"], metadata=asked
    )
    named = [set(results["samples"]["ropebench_arithmetic_copy"][0]["metrics"]) for results in (ours, stock)]
    assert named[0] == {"exact_match", "answer_nll", "context_nll", "context_perplexity"}
    assert named[1] == {"exact_match"}


def test_the_default_length_is_the_models_window() -> None:
    results = evaluated("ropebench", {"pretrained": folder()}, ["ropebench_niah"], metadata={"n": 1, "docs": "noise"})
    assert results["samples"]["ropebench_niah"][0]["doc"]["length"] == WINDOW
    longer = {"pretrained": folder(), "method": "pi", "factor": 2}
    results = evaluated("ropebench", longer, ["ropebench_niah"], metadata={"n": 1, "docs": "noise"})
    assert results["samples"]["ropebench_niah"][0]["doc"]["length"] == 2 * WINDOW
    assert "recall,none" in results["results"]["ropebench_niah"]  # one length: no length in the name


@pytest.mark.parametrize(
    "arguments, metadata, gen_kwargs, message",
    [
        ({}, {"max_seq_lengths": [1024]}, None, "window is 512, and lm-eval would cut.*max_length=1024"),
        ({}, {"max_seq_lengths": [128]}, None, "below the minimum"),
        ({}, {"max_seq_lengths": ["4x"]}, None, "not a number of tokens"),
        ({}, {"max_seq_length": [400]}, None, "did you mean 'max_seq_lengths'"),
        ({}, {}, {"max_gen_toks": 100}, "--gen_kwargs asks for 100 new tokens"),
        ({"truncation": True}, {}, None, "truncation"),
    ],
)
def test_a_prompt_that_would_be_cut_is_an_error(
    arguments: dict[str, Any], metadata: dict[str, Any], gen_kwargs: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        evaluated("hf", {"pretrained": folder(), **arguments}, ["ropebench_niah"], gen_kwargs=gen_kwargs,
                  metadata={"n": 1, "docs": "noise", **metadata})  # fmt: skip


def test_fault_47_a_config_without_a_length_asks_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import lm_eval.models.utils

    from ropebench.lm_harness import window

    window._config_window.cache_clear()
    monkeypatch.setattr(lm_eval.models.utils, "resolve_max_length", lambda config, tokenizer, default: default)
    with pytest.raises(UsageError, match="add max_length="):
        window.max_length_of({"pretrained": folder("word")}, None)
    window._config_window.cache_clear()
    assert window.max_length_of({"pretrained": folder("word"), "max_length": "1k"}, None) == 1024


def test_documents_that_no_string_stands_for_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A document cut within a character of three tokens, for a model that takes strings; ours takes its tokens."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "one.txt").write_text("A" + "日本語の長い文書です。" * 40, encoding="utf-8")
    model, task = {"pretrained": folder("bpe"), **ARGUMENTS}, "ropebench_proofpile"
    results = [
        evaluated(kind, model, [task], metadata={"n": 1, "max_seq_lengths": [300, 301, 302], "docs": str(docs)})
        for kind in ("hf", "ropebench")
    ]
    stock, ours = ({row["doc"]["length"]: row for row in r["samples"][task] if row["metrics"]} for r in results)
    assert (set(stock), set(ours)) == ({301}, {300, 301, 302})
    assert "2 of 3 documents left out" in caplog.text
    assert stock[301]["nll@301"] == pytest.approx(ours[301]["nll@301"], rel=1e-4)
    with pytest.raises(UsageError, match="none is left"):
        evaluated("hf", model, [task], metadata={"n": 1, "max_seq_lengths": [300], "docs": str(docs)})


def test_a_system_prompt_is_refused_and_the_request_cache_not_used(caplog: pytest.LogCaptureFixture) -> None:
    asked = {"n": 1, "max_seq_lengths": [300], "docs": "noise"}
    with pytest.raises(UsageError, match="system_instruction"):
        evaluated(
            "ropebench", {"pretrained": folder()}, ["ropebench_niah"], system_instruction="Be brief.", metadata=asked
        )
    evaluated("ropebench", {"pretrained": folder()}, ["ropebench_niah"], cache_requests=True, metadata=asked)
    assert "mixes lengths and tokenizers" in caplog.text
