"""RULER's strings, scorers and summary, against NVIDIA's own (hashes and rules of commit c3f5e3b)."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from functools import cache
from importlib import util
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ropebench.corpus import NOISE
from ropebench.registry import Registry
from ropebench.ruler import TASKS, length_score, length_summary, string_match_all, string_match_part
from ropebench.ruler.depth import GRID, even_depths
from ropebench.ruler.frequency import counts, numbered
from ropebench.ruler.needles import Setting, question
from ropebench.ruler.prompts import CWE, FWE, NEEDLE, NIAH, QA, VT, singular
from ropebench.ruler.scoring import cleaned, match_all, match_part
from ropebench.ruler.words import PAIRS, distinct_words, single_words, word_pair
from ropebench.task import Example, Output, Task


@pytest.mark.parametrize(
    "text, sha256, characters",
    [
        (NIAH.template, "b373c00e238df12b", 253),
        (NIAH.answer_prefix, "994f3a46e763414f", 81),
        (NIAH.template + NIAH.answer_prefix, "d285336585494ddc", 334),
        (singular(NIAH.template) + singular(NIAH.answer_prefix), "931ce9a842e91fa8", 324),
        (VT.template, "fcfaf2eab2bc3e35", 179),
        (VT.answer_prefix, "4a4e9010ec4141a3", 137),
        (CWE.template, "45fff5d17627b65a", 201),
        (CWE.answer_prefix, "8ee526599bbc7372", 65),
        (FWE.template, "a0c7b873cf500d6c", 284),
        (FWE.answer_prefix, "9a72271c5762c96d", 89),
        (QA.template, "18a659c9723f24f1", 284),
        (QA.answer_prefix, "255204f061d7e266", 8),
        (NEEDLE, "8b1728a938426e42", 63),
        (NOISE, "c2fcf70de6081e6f", 89),
    ],
)  # fmt: skip
def test_every_string_is_nvidias_to_the_byte(text: str, sha256: str, characters: int) -> None:
    assert (hashlib.sha256(text.encode()).hexdigest()[:16], len(text)) == (sha256, characters)


def test_budgets_are_nvidias() -> None:
    assert [p.new_tokens for p in (NIAH, VT, CWE, FWE, QA)] == [128, 30, 120, 50, 32]


def test_the_thirteen_tasks_are_registered_with_their_scorers() -> None:
    entries = {e.name: e.cls for e in Registry.load().of("task") if e.name.startswith("ruler/")}
    assert sorted(entries) == sorted(f"ruler/{name}" for name in TASKS)
    assert len(TASKS) == 13
    for name, cls in entries.items():
        assert cls().scorer_name() == ("ruler_part" if "qa_" in name else "ruler_all")
        assert cls.metrics[0].name == "score"
    prose = {name for name, cls in entries.items() if cls.needs_corpus}
    assert prose == {f"ruler/niah_{n}" for n in ("single_2", "single_3", "multikey_1", "multivalue", "multiquery")}


# Scorers

TEN = "river stone cloud maple ember quartz violet harbor saddle lantern".split()


def test_a_perfect_ten_word_answer_is_100_and_a_bare_string_an_error() -> None:  # fault 29
    answer = " ".join(f"{i}. {word}" for i, word in enumerate(TEN, 1))
    assert string_match_all([answer], [TEN]) == 100.0
    for wrong in ((answer, [TEN]), ([answer], "river"), ([answer], ["river"]), (answer, TEN)):
        with pytest.raises(TypeError):
            string_match_all(*wrong)
        with pytest.raises(TypeError):
            string_match_part(*wrong)
    with pytest.raises(TypeError):
        match_all(answer, "river")


@pytest.mark.parametrize(
    "predictions, references, of_all, of_any",
    [
        (["Paris"], [["Paris", "city of light", "PARIS"]], 66.67, 100.0),
        (["the capital, paris."], [["Paris"]], 100.0, 100.0),
        ([""], [["Paris"]], 0.0, 0.0),
        (["know nothing"], [["no"]], 100.0, 100.0),  # plain substring, as the original
        (["a", "b", "c"], [["a", "b"], ["a"], ["c"]], 50.0, 66.67),
        (["1234567", "1234567 7654321"], [["1234567"], ["7654321", "1111111"]], 75.0, 100.0),
        (["a", "", ""], [["a", "b", "c"]] * 3, 11.11, 33.33),
    ],
)  # fmt: skip
def test_scorers_follow_nvidias_rules(
    predictions: list[str], references: list[list[str]], of_all: float, of_any: float
) -> None:
    assert string_match_all(predictions, references) == of_all
    assert string_match_part(predictions, references) == of_any


def test_any_accepted_answer_counts_in_full_and_unrelated_text_not_at_all() -> None:  # fault 43
    accepted = ["Denver Broncos", "the Broncos"]
    assert [match_part(text, accepted) for text in ("Denver Broncos", "the Broncos", "a walk in the rain")] == [1, 1, 0]
    assert [match_all(text, ["4831276"]) for text in ("4831276", "the rain")] == [1, 0]


@cache
def member(name: str) -> Task:
    task: Task = Registry.load().entry("task", f"ruler/{name}").cls()
    return task


SCORED = json.loads((Path(__file__).with_name("data") / "ruler" / "scoring.json").read_text(encoding="utf-8"))
MEMBER = {
    "niah": "niah_multiquery",
    "variable_tracking": "vt",
    "common_words_extraction": "cwe",
    "freq_words_extraction": "fwe",
    "qa": "qa_1",
}


@pytest.mark.parametrize("case", SCORED, ids=range(len(SCORED)))
def test_scores_are_those_that_nvidias_own_files_gave(case: dict[str, Any]) -> None:
    made = [cleaned(prediction) for prediction in case["predictions"]]
    assert made == case["cleaned"]
    assert sum(not prediction for prediction in made) == case["empty"]
    scorer = string_match_part if case["task"] == "qa" else string_match_all
    assert scorer(made, case["references"]) == case["score"]
    task = member(MEMBER[case["task"]])
    scores = [
        task.score(Example(targets=tuple(wanted)), Output(prediction))["score"]
        for prediction, wanted in zip(case["predictions"], case["references"], strict=True)
    ]
    assert round(sum(scores) / len(scores) * 100, 2) == case["score"]


@pytest.mark.parametrize(
    "raw, clean",
    [
        (" a ", "a"),
        ("\x00a\x1fb\t", "a\nb"),
        ("\x1f \x01", ""),
        ("a\r\nb", "a\n\nb"),
        ("a\x7fb\x85", "a\x7fb"),
        ("", ""),
    ],
)
def test_predictions_are_cleaned_as_nvidia_does(raw: str, clean: str) -> None:
    assert cleaned(raw) == clean


def test_scores_of_a_sample() -> None:
    registry = Registry.load()
    several = Example(targets=("Abc", "def", "ghi", "jkl"))
    assert registry.build("task", "ruler/vt")[0].score(several, Output(" abc\x00DEF ")) == {"score": 0.5}
    assert registry.build("task", "ruler/qa_1")[0].score(several, Output("GHI")) == {"score": 1.0}


def test_lm_evals_copy_of_nvidias_code_agrees() -> None:
    """Its scorer for qa is its own and wrong; the cleaning and the scorer for the others are NVIDIA's."""
    place = util.find_spec("lm_eval")
    if place is None or place.origin is None:
        pytest.skip("lm_eval is not installed")
    source = (Path(place.origin).parent / "tasks" / "ruler" / "common_utils.py").read_text(encoding="utf-8")
    theirs: dict[str, Any] = {"re": re}
    exec(source[source.index("def postprocess_pred") : source.index("def string_match_part")], theirs)
    rng = Random(0)
    for _ in range(50):
        references = [["".join(rng.choices("abAB", k=2)) for _ in range(rng.randint(1, 5))] for _ in range(7)]
        predictions = ["".join(rng.choices("abAB \n\t\x01", k=12)) for _ in references]
        clean = [cleaned(text) for text in predictions]
        assert clean == theirs["postprocess_pred"](predictions)
        assert string_match_all(clean, references) == round(theirs["string_match_all"](clean, references) * 100, 2)


# The summary over lengths

PUBLISHED = {4096: 96.5, 8192: 95.8, 16384: 95.4, 32768: 94.8, 65536: 88.4, 131072: 66.6}


def test_the_leaderboard_columns_can_be_rebuilt() -> None:  # fault 30
    summary = length_summary(PUBLISHED)
    assert round(summary.mean, 1) == 89.6
    assert round(summary.increasing, 1) == 85.5
    assert round(summary.decreasing, 1) == 93.7
    assert summary.effective_length == 65536
    assert length_summary(dict(reversed(PUBLISHED.items()))) == summary
    assert length_summary({4096: 50.0}).effective_length is None
    assert length_summary({4096: 0.9, 8192: 0.8}, threshold=0.856).effective_length == 4096


def test_a_length_score_is_the_plain_mean_of_13_or_blank() -> None:  # fault 30
    scores = {name: float(i) for i, name in enumerate(TASKS)}
    assert length_score(scores) == 6.0
    assert length_score({name: scores[name] for name in TASKS[:12]}) is None


def test_scores_and_summary_load_no_model_and_no_data_frame() -> None:
    code = "import ropebench.ruler, sys; print({'numpy', 'pandas', 'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"


# Words, depths, counts


def test_words_are_those_of_wonderwords_301() -> None:
    assert PAIRS == 6_171_620
    assert len(single_words()) == 8166
    pair = word_pair(Random(0))
    assert "-" in pair
    drawn = distinct_words(Random(1), 9000)
    assert len(set(drawn)) == 9000
    assert set(drawn[:8166]) == set(single_words())
    assert distinct_words(Random(1), 9000) == drawn


def test_the_grid_is_the_originals() -> None:
    assert len(set(GRID)) == 40
    assert GRID[:6] == (0, 3, 5, 8, 10, 13)
    assert GRID[-2:] == (97, 100)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_depths_are_even_for_any_number_of_samples(seed: int) -> None:
    for needle in range(5):
        depths = [even_depths("ruler/vt", seed, i, 5)[needle] for i in range(200)]
        for n in (20, 50, 100, 200):
            ordered = sorted(depths[:n])
            worst = max(max(abs(d - k / n), abs(d - (k + 1) / n)) for k, d in enumerate(ordered))
            assert worst < 0.26 if n == 20 else worst < 0.15  # independent draws: up to 0.30 and 0.19 at these n


def test_counts_of_coded_words_are_the_zeta_law() -> None:
    assert counts(1000, 20)[:5].tolist() == [607, 151, 67, 37, 24]
    for words in range(27, 400):
        found = counts(words, 40)
        assert found[1] >= found[2] >= found[3] > found[4]


def test_a_list_is_numbered_in_one_line() -> None:
    assert numbered(["a", "b"]) == "1. a 2. b"


def test_wording_is_singular_for_one_answer_and_plural_for_more() -> None:
    one = question(Setting("noise"), Random(0))
    assert one.template.startswith(
        "A special magic number is hidden within the following text. Make sure to memorize it."
    )
    assert one.answer_prefix.endswith(" mentioned in the provided text is")
    assert one.needles[0].startswith("One of the special magic numbers for ")
    four = question(Setting("essay", keys=4, queries=4), Random(0))
    assert four.template.startswith("Some special magic numbers are hidden within")
    assert four.answer_prefix.endswith(" mentioned in the provided text are")
    assert four.answer_prefix.count(", ") == 3
    assert ", and " in four.answer_prefix
    assert len(set(four.targets)) == 4
    values = question(Setting("essay", values=4), Random(0))
    assert len(values.targets) == 4
    assert question(Setting("essay", value="uuids"), Random(0)).template.count("uuid") == 3
