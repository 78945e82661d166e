"""InfiniteBench's scorers: the official one against vectors that the original's own script was run on, the lenient one
against what a reader would say. Numbers in comments are those of the project's list of public reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ropebench.errors import UsageError
from ropebench.infinitebench import SUBSETS, judging
from ropebench.infinitebench.judging import metrics_of, scores
from ropebench.infinitebench.lenient import choice, lenient
from ropebench.infinitebench.rows import rows_of, texts
from ropebench.infinitebench.samples import Choice, targets_of
from ropebench.infinitebench.scoring import chinese, english, label_of, official, rouge_lsum
from ropebench.registry import Registry
from ropebench.task import Example, Output

DATA = Path(__file__).with_name("data") / "infinitebench"
FUNCTION = ["f_c", "C"]  # what the original's get_answer makes of code_debug's label


@pytest.mark.parametrize(
    "subset, prediction, label, right",
    [
        ("code_debug", "B", ["f", "B"], 0.0),
        ("code_debug", "B. f", ["f", "B"], 1.0),
        ("code_debug", " B: f", ["f", "B"], 1.0),
        ("code_debug", "The answer is: B", ["f", "B"], 1.0),
        ("code_debug", "The answer is: Because", ["f", "B"], 1.0),  # any word that begins so
        ("code_debug", "The correct option is: f", ["f", "B"], 1.0),
        ("code_debug", "The answer is:", ["f", "B"], 0.0),
        ("longbook_choice_eng", "A bad answer", ["text", "A"], 1.0),
        ("longbook_choice_eng", "Answer: B", ["text", "B"], 0.0),
        ("longbook_choice_eng", "the correct answer is: B", ["text", "B"], 1.0),
        ("longbook_choice_eng", "text", ["text", "B"], 1.0),
        ("longbook_choice_eng", "", ["text", "B"], 0.0),
        ("longbook_choice_eng", "it is B", ["text", "B"], 1.0),
        ("longdialogue_qa_eng", "Ace", ["ACE"], 1.0),
        ("longdialogue_qa_eng", "Remo", ["Remo"], 0.0),
        ("longdialogue_qa_eng", "ECKER", ["BILL", "ECKER"], 0.0),
        ("kv_retrieval", '"ab-1"', ["ab-1"], 0.0),
        ("kv_retrieval", '"ab-1"', "ab-1", 1.0),
        ("code_run", "it is 4", "4", 0.0),
        ("code_run", "it is 4", 4, 1.0),
        ("code_run", "-14.", [-14], 1.0),
        ("code_run", "4.\nPlease compute", 4, 0.0),
        ("code_run", "3.14", 14, 1.0),
        ("passkey", "0 71432", ["71432"], 0.0),
        ("passkey", " 71432. Remember", "71432", 1.0),
        ("number_string", "71432", ["71432"], 1.0),
        ("math_find", "88", [88], 1.0),
        ("math_find", "88", 88.0, 1.0),
        ("math_find", "none", 88, 0.0),
        ("math_calc", "[1, 2, 4]", [1, 2, 3, 4], 0.5),
        ("math_calc", "[1, 2, 4]", [[1, 2, 3, 4]], 0.5),
        ("math_calc", "[1, -2, 3]", [1, 2, 3], 1.0),  # signs are not seen
        ("longbook_qa_eng", "blue", "blue", 0.0),
        ("longbook_qa_eng", "blue", ["blue"], 1.0),
        ("longbook_qa_eng", "A blue, blue house!", ["red", "the blue house"], 0.8),
        ("longbook_qa_chn", "三十七枚。", ["三十七枚"], 1.0),
        ("longbook_qa_chn", "七枚", ["三十七枚"], 2 / 3),
    ],
)
def test_official_gives_what_the_original_gives(subset: str, prediction: str, label: Any, right: float) -> None:
    assert official(subset, prediction, label) == pytest.approx(right)


def test_official_stops_where_the_original_stops() -> None:
    with pytest.raises(TypeError):
        official("math_find", "44", "44")
    with pytest.raises(ValueError, match=r"88\.5"):
        official("math_find", "88.5", 88)
    with pytest.raises(TypeError):
        official("math_calc", "1", "1")


def test_gpt4s_first_number_is_left_out_by_the_official_scorer_alone() -> None:
    assert official("math_calc", "95, 41, 55", [41, 55], "gpt4") == 1.0
    assert official("math_calc", "95, 41, 55", [41, 55]) == 0.0
    example = Example(targets=("41", "55"), meta={"values": 2})
    got = {p: scores("math_calc", "official", p, example, Output("95, 41, 55")) for p in ("yarn_mistral", "gpt4")}
    assert got["gpt4"] == {"correct_prefix": 1.0, "correct_values": 2.0}
    assert got["yarn_mistral"] == {"correct_prefix": 0.0, "correct_values": 0.0}
    assert scores("math_calc", "lenient", "yarn_mistral", example, Output("95, 41, 55"))["correct_prefix"] == 1.0


def test_a_model_that_repeats_a_digit_for_ever_is_wrong_and_no_error() -> None:
    example = Example(targets=("41", "55"), meta={"values": 2})
    for scorer in ("official", "lenient"):
        assert scores("math_calc", scorer, "yarn_mistral", example, Output("41, " + "5" * 9000))["correct_values"] == 1
        answer = Output("7" * 9000)
        for subset in ("code_run", "math_find", "passkey"):
            assert scores(subset, scorer, "yarn_mistral", Example(targets=("7",)), answer) == {"accuracy": 0.0}


def test_the_share_of_math_calc_is_of_all_values_though_the_first_are_stored() -> None:
    example = Example(targets=("41", "55"), meta={"values": 8})
    assert scores("math_calc", "official", "yarn_mistral", example, Output("[41, 55, 1]"))["correct_prefix"] == 0.25


# 38: two-word names, and every accepted name
@pytest.mark.parametrize(
    "prediction, labels, upstream",
    [
        ("STAMP PAID", ("STAMP PAID",), 0.0),
        ("COMMANDER BILL ECKER", ("ECKER", "COMMANDER BILL ECKER"), 1.0),
        ("adrian", ("ADRIAN",), 1.0),
    ],
)
def test_38_names_of_several_words_are_right(prediction: str, labels: tuple[str, ...], upstream: float) -> None:
    assert lenient("longdialogue_qa_eng", prediction, labels) == 1.0
    assert official("longdialogue_qa_eng", prediction, list(labels)) == upstream
    assert lenient("longdialogue_qa_eng", "SURFACE", ("ACE",)) == 0.0


# 39: a number stored as a number, in a list, or as text
@pytest.mark.parametrize("stored", [44, [44], ["44"]])
def test_39_a_number_is_right_however_it_is_stored(stored: Any) -> None:
    answers = texts(stored)
    assert official("math_find", "The answer is 44", label_of("math_find", answers)) == 1.0
    assert lenient("math_find", "The answer is 44", answers) == 1.0


# 40: the parser of a four-way choice
@pytest.mark.parametrize(
    "prediction, upstream",
    [("C.", 1.0), ("The answer is: C", 1.0), ("C", 0.0), ("The answer is C", 0.0), ("**C. f_c**", 0.0)],
)
def test_40_choices_under_either_rule(prediction: str, upstream: float) -> None:
    assert official("code_debug", prediction, FUNCTION) == upstream
    assert lenient("code_debug", prediction, ["f_c"], ["f_a", "f_b", "f_c", "f_d"]) == 1.0
    example = Example(targets=("C. f_c",), meta={"options": ["f_a", "f_b", "f_c", "f_d"]})
    assert scores("code_debug", "official", "gpt4", example, Output(prediction)) == {"accuracy": upstream}
    assert scores("code_debug", "lenient", "gpt4", example, Output(prediction)) == {"accuracy": 1.0}


@pytest.mark.parametrize(
    "prediction, letter",
    [
        ("Answer: B", "B"),
        (" B\n\nQuestion: And who is A?\nA. x", "B"),
        ("(D) because A and B are wrong", "D"),
        ("Option A is wrong, so the answer is C", "C"),
        ("At first the answer is A, in the end the answer is D", "D"),
        ("a bad answer", None),
        ("b", "B"),
        ("it is the red Two", "D"),
        ("two or the red one", None),
        ("", None),
    ],
)
def test_what_a_reader_would_call_the_choice(prediction: str, letter: str | None) -> None:
    assert choice(prediction, ["one", "two", "the red one", "red two"]) == letter


@pytest.mark.parametrize(
    "subset, prediction, answers, right",
    [
        ("passkey", "0 71432", ["71432"], 1.0),
        ("passkey", "714320", ["71432"], 0.0),
        ("kv_retrieval", "value=AB-1;", ["ab-1"], 1.0),
        ("code_run", "4.\nPlease compute the value of func_10(6", ["4"], 1.0),
        ("code_run", ":\nfunc_7055(2) = 11\n", ["11"], 1.0),
        ("code_run", "2. This is based on func_13", ["2"], 1.0),
        ("code_run", "11.2998", ["11"], 0.0),
        ("code_run", "3 + 4 = 7", ["7"], 1.0),
        ("code_run", "func_3(-2) = -14", ["-14"], 1.0),
        ("code_run", "no idea", ["1"], 0.0),
        ("math_find", "88.5", ["88"], 0.0),
        ("math_find", "46", ["46.0"], 1.0),
        ("longbook_qa_eng", "Pilot\nQuestion: And the cat?\nAnswer: Tom", ["Pilot"], 1.0),
        ("longbook_qa_chn", "\n蓝色\n问题：", ["蓝色"], 1.0),
    ],
)
def test_lenient_is_the_sensible_reading(subset: str, prediction: str, answers: list[str], right: float) -> None:
    assert lenient(subset, prediction, answers) == right


# 43: a metric fed the wrong thing
@pytest.mark.parametrize("subset", SUBSETS)
@pytest.mark.parametrize("scorer", ["official", "lenient"])
def test_43_the_answer_scores_1_and_unrelated_text_nothing(subset: str, scorer: Any) -> None:
    rows = rows_of(subset, DATA / f"{subset}.jsonl")
    metric = metrics_of(subset)[0].name
    for number in range(len(rows)):
        row = rows[number]
        targets = targets_of(Choice(subset, "yarn_mistral", "middle", 0, None, 2048), row)
        example = Example(targets=targets, meta={"options": list(row.options), "values": len(row.answers)})

        def score(text: str, example: Example = example) -> float:
            return scores(subset, scorer, "yarn_mistral", example, Output(text))[metric]

        perfect = score(", ".join(targets) if subset == "math_calc" else targets[0])
        spoken = scorer == "lenient" or targets[0] != "STAMP PAID"  # two words: fault 38
        assert perfect == (1.0 if spoken else 0.0)
        assert score("Xylophones hum quietly underwater") < 0.05
        assert score("") == 0.0
        if len(targets) > 1 and subset in ("longbook_qa_eng", "longbook_qa_chn"):
            assert score(targets[1]) == 1.0


def test_rouge_lsum_takes_lines_for_sentences_and_the_best_label() -> None:
    assert rouge_lsum("four five six\none two three", "one two three four five six") == 1.0
    assert rouge_lsum("four five six one two three", "one two three four five six") == 0.5
    assert rouge_lsum("cats ran", ["dogs sat", "cat run"]) == 0.0
    assert rouge_lsum("cats run", ["dogs sat", "cat runs"], stem=True) == 1.0
    # By hand: common subsequence "the b", precision 2/3, recall 2/4.
    assert rouge_lsum("the a b", "the c b d") == pytest.approx(4 / 7)


def test_tokens_that_answers_are_compared_by() -> None:
    assert english("The cat's, an  APPLE") == ["cats", "apple"]
    assert chinese("三十 七，枚《书》。ABC!") == list("三十七枚《书abc")


@pytest.mark.parametrize("subset, answers", [("code_run", ["x"]), ("math_find", ["many"]), ("math_calc", ["1", "b"])])
def test_labels_that_are_none_of_a_subset_are_said(subset: str, answers: list[str], tmp_path: Path) -> None:
    rows = rows_of(subset, DATA / f"{subset}.jsonl")
    row = rows[0].__class__(7, "", rows[0].input, tuple(answers))
    with pytest.raises(UsageError, match=f"infinitebench/{subset}: the label of row 7"):
        targets_of(Choice(subset, "gpt4", "middle", 0, None, 50), row)


def test_metrics_and_chance_levels() -> None:
    chance = {subset: metrics_of(subset)[0].chance for subset in SUBSETS}
    expected = dict.fromkeys(SUBSETS, 0.0) | {"longbook_choice_eng": 0.25, "code_debug": 0.25}
    assert chance == expected | {"code_run": 0.02, "math_find": 0.05}
    assert [metric.name for metric in metrics_of("math_calc")] == ["correct_prefix", "correct_values"]


def test_the_scorers_name_is_in_use_and_in_the_label() -> None:
    registry = Registry.load()
    for name in ("infinitebench/code_debug", "infinitebench_generated/code_run"):
        plain, other = (registry.build("task", name + words)[0] for words in ("", ":scorer=lenient:prompts=gpt4"))
        assert (plain.scorer_name(), plain.variant_name()) == ("infinitebench_official_2024_06", "")
        assert other.scorer_name() == "infinitebench_lenient_1"
        assert sorted(other.variant_name().split(":")) == ["prompts=gpt4", "scorer=lenient"]


def test_rouge_that_is_not_installed_is_said_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "find_spec", lambda _: None)
    registry = Registry.load()
    task = registry.build("task", f"infinitebench/longbook_sum_eng:data={DATA}")[0]
    with pytest.raises(UsageError, match=r"needs rouge-score .* pip install 'ropebench\[rouge\]'"):
        task.resolved([4096])
    registry.build("task", f"infinitebench/longbook_qa_eng:data={DATA}")[0].resolved([4096])
