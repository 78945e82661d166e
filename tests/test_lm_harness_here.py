"""lm-eval's tasks as cells: scores as lm-eval gives them, prompts whole, and identities that tell everything apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import tokenizer
from lm_eval_runs import (
    CHOOSE,
    GENERATE,
    LIKELIHOOD,
    QUESTIONS,
    ROLLING,
    evaluated,
    examples,
    folder,
    measured,
    task,
    task_files,
)  # fmt: skip
from ropebench.lm_harness.measures import measures
from ropebench.prompt import Encoder
from ropebench.task import Output

# Scores


@pytest.mark.parametrize("name", ["bpe-bos", "bpe", "word-bos"])
def test_scores_and_aggregates_are_lm_evals(tmp_path: Path, name: str) -> None:
    tasks = task_files(
        tmp_path / "tasks", gen={**GENERATE, "num_fewshot": 2, "fewshot_split": "train"}, mc=CHOOSE, ll=LIKELIHOOD,
        acc={**CHOOSE, "metric_list": CHOOSE["metric_list"][:2]},  # no score asks whether an answer is greedy
    )  # fmt: skip
    stock = evaluated("hf", {"pretrained": folder(name), "max_length": 512}, ["gen", "mc", "ll", "acc"], include=tasks)
    records, rows = measured(tmp_path, folder(name), f"lm_eval:{tasks}", lengths=512, n=9)
    assert {record["task"]["scorer"] for record in records} == {"lm_eval"}
    for record in records:
        called = record["task"]["name"].removeprefix("lm_eval/")
        theirs = {row["doc_id"]: row for row in stock["samples"][called]}
        mine = [row for row in rows if row["cell_id"] == record["cell_id"]]
        assert len(mine) == len(theirs) == len(QUESTIONS)
        for row in mine:
            assert row["skip"] is None
            for metric, value in row["scores"].items():
                given = theirs[row["index"]]["perplexity" if metric == "nll" else metric]
                if metric == "nll":
                    assert value == pytest.approx(-given, rel=1e-4)
                elif metric != "brier_score":
                    assert value == pytest.approx(float(given))
            if called == "gen":
                assert row["output"] == theirs[row["index"]]["resps"][0][0]
        for metric, found in record["outcome"]["metrics"].items():
            value = stock["results"][called].get(f"{metric},none")
            if metric != "nll":  # ropebench's own name for what perplexity is exp of
                assert found["value"] == pytest.approx(value, rel=1e-3)
                assert found["n"] == len(QUESTIONS)
    assert {record["task"]["name"]: set(record["outcome"]["metrics"]) for record in records} == {
        "lm_eval/gen": {"exact_match"},
        "lm_eval/mc": {"acc", "acc_norm", "brier_score", "exact_match"},  # mcc is no mean over samples
        "lm_eval/ll": {"perplexity", "nll", "acc"},
        "lm_eval/acc": {"acc", "acc_norm"},
    }


def test_right_answers_score_the_maximum_and_wrong_ones_do_not(tmp_path: Path) -> None:
    where = task_files(tmp_path, gen=GENERATE, mc=CHOOSE, ll=LIKELIHOOD)
    for word in ("gen", "mc", "ll"):
        asked = task(f"lm_eval:{where / word}.yaml")
        one = next(iter(asked.examples(256, Encoder(tokenizer()), 0)))
        sizes = [len(window.ids) - window.first_scored for window in one.windows]
        right = QUESTIONS[0]["label"]
        good = [[0.01] * size if number == right or word == "ll" else [5.0] * size for number, size in enumerate(sizes)]
        bad = [[5.0] * size if number == right or word == "ll" else [0.01] * size for number, size in enumerate(sizes)]
        answer = one.windows[right].ids[one.windows[right].first_scored :] if one.windows else ()
        yes = asked.score(one, Output(one.targets[0], answer, tuple(good)))
        no = asked.score(one, Output("neither", (9,), tuple(bad)))
        best = {
            "gen": {"exact_match": 1.0},
            "mc": {"acc": 1.0, "acc_norm": 1.0, "exact_match": 1.0},
            "ll": {"acc": 1.0},
        }
        assert {name: yes[name] for name in best[word]} == best[word]
        assert {name: no[name] for name in best[word]} == dict.fromkeys(best[word], 0.0)


def test_filters_have_a_metric_each(tmp_path: Path) -> None:
    strict = {
        "name": "strict",
        "filter": [{"function": "regex", "regex_pattern": "#(\\d+)"}, {"function": "take_first"}],
    }
    loose = {"name": "loose", "filter": [{"function": "regex", "regex_pattern": "(\\d+)"}, {"function": "take_first"}]}
    where = task_files(tmp_path, gen={**GENERATE, "filter_list": [strict, loose]})
    asked = task(f"lm_eval:{where}")
    one = next(iter(asked.examples(256, Encoder(tokenizer()), 0)))
    assert [metric.name for metric in asked.metrics] == ["exact_match,strict", "exact_match,loose"]
    assert asked.score(one, Output(f"it is {one.targets[0]}")) == {"exact_match,strict": 0.0, "exact_match,loose": 1.0}


def test_fault_25_rolling_likelihood_names_its_measures(tmp_path: Path) -> None:
    """24 nats over 10 tokens, 6 words, 30 bytes: token e^2.4, word e^4, bits per byte 1.1542."""
    where = task_files(tmp_path, roll=ROLLING)
    asked = task(f"lm_eval:{where}")
    assert (asked.scorer_name(), asked.chat) == ("token_nll", False)
    one = next(iter(asked.examples(64, Encoder(tokenizer()), 0)))
    fixed = type(one)(windows=one.windows, meta={"tokens_scored": 10, "words": 6, "bytes": 30})
    found = asked.score(fixed, Output(nll=([2.4] * 10,)))
    assert found == pytest.approx({"nll": 2.4, "nats_per_word": 4.0, "bits_per_byte": 1.1542}, abs=1e-4)
    derived = {metric.name: metric.derived for metric in asked.metrics if metric.derived}
    assert derived == {"perplexity": ("exp", "nll"), "word_perplexity": ("exp", "nats_per_word")}


@pytest.mark.parametrize("name", ["bpe", "bpe-bos"])
def test_rolling_windows_score_every_token_once(tmp_path: Path, name: str) -> None:
    where = task_files(tmp_path, roll={**ROLLING, "doc_to_target": "{{text}} {{q}} {{text}} {{q}}"})
    words = tokenizer(name)
    for length in (16, 17, 40, 4096):
        for one in examples(f"lm_eval:{where}", length, name):
            scored = [i for window in one.windows for i in window.ids[window.first_scored :]]
            whole = list(one.windows[0].ids[:1]) + scored
            head = [0] if name == "bpe-bos" else []
            text = words.decode(whole[len(head) :])
            assert whole == head + words(text, add_special_tokens=False)["input_ids"]
            assert all(len(window.ids) <= length for window in one.windows)
            assert sum(window.ids[0] == 0 for window in one.windows) == len(head)
            assert one.meta["tokens_scored"] == len(scored)


def test_aggregations_that_are_no_means_are_left_out() -> None:
    from lm_eval.api import metrics as known

    def own_mean(values: list[float]) -> float:
        kept = [value for value in values if value != -1]
        return sum(kept) / len(kept)

    def worst(values: list[float]) -> float:
        return min(values)

    found, left = measures(
        {"a": known.mean, "b": own_mean, "c": worst, "d": known.f1_score, "e": known.perplexity, "f": known.median},
        dict.fromkeys("abcdef", True), ["none"], None, False,
    )  # fmt: skip
    assert ([one.key for one in found], left) == (["a", "b", "e"], ["c", "d", "f"])


# Prompts


def test_prompts_are_fed_whole_with_one_bos(tmp_path: Path) -> None:
    """FAULT 35, and lm-eval's few-shot prompt to the byte."""
    where = task_files(tmp_path, gen={**GENERATE, "num_fewshot": 1, "fewshot_split": "train"})
    for one in examples(f"lm_eval:{where}"):
        assert one.ids[0] == 0
        assert one.ids.count(0) == 1
        text = tokenizer("bpe-bos").decode(one.ids[1:])
        assert text.count("Question: ") == 2
        assert text.endswith("\nAnswer:")
        assert "\\n" not in text  # FAULT 44
        assert (one.max_new_tokens, one.stop) == (6, ("\n", "."))


def test_a_chat_template_wraps_the_turns_and_keeps_one_bos(tmp_path: Path) -> None:
    where = task_files(
        tmp_path, gen={**GENERATE, "num_fewshot": 1, "fewshot_split": "train", "gen_prefix": "So:"}, mc=CHOOSE
    )
    words = tokenizer("bpe-bos")
    one = examples(f"lm_eval:{where}/gen.yaml", chat=True)[0]
    assert one.ids[0] == 0
    assert one.ids.count(0) == 1
    text = words.decode(one.ids)
    assert text.endswith("So:")
    assert text.count("Question: ") == 2
    assert text.count(QUESTIONS[0]["q"]) <= 2
    assert all(
        w.ids[0] == 0 and w.ids.count(0) == 1 for w in examples(f"lm_eval:{where}/mc.yaml", chat=True)[0].windows
    )


def test_a_token_across_the_seam_is_scored_not_doubled() -> None:
    """Context and continuation are encoded in one piece; joining two encodings would feed ids that no text has."""
    from ropebench.lm_harness.spelling import pair_ids

    for name in ("bpe", "bpe-bos"):
        encoder = Encoder(tokenizer(name))
        for context, continuation in (("the stat", "ement"), ("Answer:", " for"), ("Answer: ", "for"), ("", "for it")):
            ids, first = pair_ids(encoder.markup, context, continuation, 0)
            assert encoder.decode(ids) == context + continuation
            assert ids[:first] == encoder.markup(context)[:first] if context.strip() else first == 1
            assert 1 <= first < len(ids)


def test_what_does_not_fit_is_skipped_and_counted(tmp_path: Path) -> None:
    where = task_files(tmp_path / "tasks", gen={**GENERATE, "doc_to_text": "{{q * (1 + label)}}"})
    whole = examples(f"lm_eval:{where}", 4096)
    sizes = sorted(one.tokens for one in whole)
    length = sizes[3]
    records, rows = measured(tmp_path, folder(), f"lm_eval:{where}", lengths=length, n=9)
    condition = records[0]["condition"]
    fit = sum(size <= length for size in sizes)
    assert (condition["n_scored"], condition["n_skipped"]) == (fit, 9 - fit)
    assert 0 < fit < 9
    assert all(f"of {length} tokens" in row["skip"] for row in rows if row["tokens"] > length)
