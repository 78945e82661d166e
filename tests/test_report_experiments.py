"""What the experiments came to, from records alone: tables, sentences and plots say what the numbers show, no more."""

import math
from pathlib import Path
from typing import Any

import pytest

from ropebench.lens.experiment.law import fitted
from ropebench.report import experiment_page, experiments
from ropebench.report.tables import as_text

Json = dict[str, Any]
VARIANTS = (experiments.DEFAULT, "all/mean_square/share")
FREQUENCIES = [1.0, 0.1, 0.01]
TRAINING = {"steps": 300, "tokens": 4096}
SHAPE = {"vocabulary": 16, "window": 64, "theta": 1000.0}


def look(theta: float) -> Json:
    return {
        "inv_freq": FREQUENCIES, "shares": [0.5, 0.3, 0.2], "concentration": 0.4, "unevenness": 0.6,
        "theta_eff": {VARIANTS[0]: theta, VARIANTS[1]: theta * 1.1},
    }  # fmt: skip


def record(name: str, setting: Json, measured: Json) -> Json:
    even = {**look(0.1), "shares": [0.36, 0.34, 0.3], "concentration": 0.01, "unevenness": 0.1}
    shared = {"initial": even, "held_out": {"accuracy": 0.9, "nll": 0.5, "n": 100}, "chance": 0.0625}
    about = {"name": name, "what": "experiment", "setting": {"training": TRAINING, "shape": SHAPE, **setting}}
    return {"kind": "lens", "cell_id": repr(setting), "lens": {**about, "measured": {**shared, **measured}}}


def wide(value: float | None, far: bool = False) -> Json:
    return {"value": value, "low": value and value * 0.9, "high": value and value * 1.1, "share": 0.9, "open": far}


def blocks(form: str, law: Any, sizes: tuple[int, ...] = (4, 8, 16, 32, 64), seeds: int = 3, **more: Any) -> list[Json]:
    return [
        record("block", {"form": form, "size": size, "seed": seed, **more.get("setting", {})},
               {"spectrum": look(law(size) * (0.98 + 0.02 * seed)), "width": wide(size / 2), **more.get("found", {})})
        for size in sizes for seed in range(seeds)
    ]  # fmt: skip


def problems(law: Any) -> list[Json]:
    answers = {"accuracy": 0.05, "nll": 3.0, "n": 50}
    return [
        record("igsm", {"size": size, "seed": seed},
               {"spectrum": look(law(size) * (1 + 0.02 * seed)), "width": wide(10.0 * size), "answers": answers,
                "problem_tokens": 50 * size, "chance": 1 / 23})
        for size in (1, 2, 4, 8) for seed in range(3)
    ]  # fmt: skip


def past(form: str, sorts: tuple[str, ...], scores: dict[str, tuple[float, float]]) -> list[Json]:
    """`scores`: perplexity and exactness at ×4 by method; 2.0 and 0.9 in the window."""
    found = []
    for seed in range(2):
        tests = [
            {"test": sort, "factor": factor, "method": name, "perplexity": 2.0 if factor == 1 else perplexity,
             "accuracy": 0.9 if factor == 1 else exact + 0.01 * seed, "nll": 0.7, "n": 10}
            for sort in sorts for factor in (1, 4) for name, (perplexity, exact) in scores.items()
            if factor > 1 or name == "none"
        ]  # fmt: skip
        profile = {"profile": {"distances": [1, 2, 4], "mi": [0.1, 0.05, -1e-5], "classes": 16}, "width": wide(20.0)}
        looks = dict.fromkeys(("training", *sorts), profile)
        found.append(record("pi", {"form": form, "seed": seed}, {"spectrum": look(0.1), "tests": tests,
                                                                 "dependence": looks}))  # fmt: skip
    return found


DIFFERENT = {"none": (20.0, 0.3), "pi": (4.0, 0.1), "yarn": (8.0, 0.8)}


def test_a_law_that_holds_is_said_with_its_intervals_beside_the_papers_numbers() -> None:
    lines = experiment_page.block(blocks("recall", lambda size: 3.02 / size * (1.05 if size in (4, 32) else 0.96)))
    assert lines[0].startswith("`recall` (B = 4, 8, 16, 32, 64, 15 models): the law with the paper's constant. Slope −")
    assert "−1 lies inside" in lines[0]
    assert "3.02 (paper) lies inside and π (theory) lies inside" in lines[0]
    assert "2 variants" in lines[1]


@pytest.mark.parametrize(
    ("law", "said", "beside"),
    [
        (
            lambda size: 1.9 / size,
            "the law with another constant",
            "3.02 (paper) lies outside and π (theory) lies outside",
        ),
        (lambda size: 0.8 / size**0.1, "no law of slope −1", "−1 lies outside"),
    ],
)
def test_a_law_that_fails_is_said_to_fail(law: Any, said: str, beside: str) -> None:
    main = blocks("recall", law)
    lines = experiment_page.block([*main, *blocks("copy", lambda size: 0.7, (4, 16, 64), 1)])
    assert said in lines[0]
    assert beside in lines[0]
    assert lines[-1].startswith("`copy` (B = 4, 16, 64, 3 models): slope")
    assert lines[-1].endswith("the law fails here.")


def test_a_form_that_shows_little_is_not_said_to_fail() -> None:
    few = blocks("recall_fixed", lambda size: {4: 0.3, 16: 0.05, 64: 0.045}[size], (4, 16, 64), 1)
    lines = experiment_page.block([*blocks("recall", lambda size: 3 / size), *few])
    assert lines[2].endswith(": too uncertain to tell.")
    assert "Only `recall_fixed` tells them apart." in lines[3]


def test_models_that_did_not_learn_are_named() -> None:
    found = {"held_out": {"accuracy": 0.07, "nll": 2.7, "n": 100}}
    lines = experiment_page.block(blocks("recall", lambda size: 3 / size, found=found))
    assert lines[-1].startswith("Right less than twice as often as a guess: 15 models of 15 (recall B = 16")


def test_the_fit_of_the_table_is_the_law_of_its_points() -> None:
    own = blocks("recall", lambda size: 3 / size)
    fit = experiments.tables(own)[-1]
    line = fitted(experiments.points(own))
    assert line is not None
    row = dict(zip(fit.columns, fit.rows[0], strict=True))
    assert row["slope"] == experiments.ends(line.slope)
    assert row["variant"] == experiments.DEFAULT
    assert len(fit.rows) == len(VARIANTS)
    assert f"c = π = {math.pi:.3f}" in fit.notes[0]


def test_models_that_were_trained_in_other_ways_are_not_mixed() -> None:
    few = {**TRAINING, "steps": 6}
    every = [*blocks("recall", lambda size: 3 / size), *blocks("recall", lambda size: 0.3, setting={"training": few})]
    by_length = [t for t in experiments.tables(every) if "by block length" in t.title]
    assert [len(t.rows) for t in by_length] == [5, 5]
    assert "only show that the command runs" not in by_length[0].notes[-1]
    assert "only show that the command runs" in by_length[1].notes[-1]


def test_a_shift_is_said_only_where_the_interval_shows_one() -> None:
    assert experiment_page.igsm(problems(lambda size: 0.1 / size))[0].endswith(
        "the spectrum moves to lower frequencies as they grow."
    )
    wavy = problems(lambda size: {1: 0.1, 2: 0.2, 4: 0.08, 8: 0.15}[size])
    assert experiment_page.igsm(wavy)[0].endswith("no shift is shown: the interval holds 0.")
    assert "5.0 % of the answers are right, 4.3 % by guessing" in experiment_page.igsm(wavy)[2]


def test_likelihood_and_exactness_stand_side_by_side() -> None:
    own = past("arithmetic", ("same",), DIFFERENT)
    (table,) = experiments.tables(own)
    assert table.columns[-2:] == ("×4 perplexity", "×4 exact, %")
    by_method = {row[0]: row for row in table.rows}
    assert by_method["pi"][-2:] == ("4 (4–4)", "10.5 (10–11)")
    assert by_method["pi"][1] == by_method["none"][1]  # in the window all are the unmodified model
    said = experiment_page.pi(own)[0]
    assert (
        "PI perplexity × 0.2, exact 30.5 → 10.5 % (−20.0 points): perplexity better in every model, exactness worse in "
        "every model. Claimed: PI lowers the perplexity of arithmetic and does not raise its exactness. Shown here. "
        "The most exact of the other methods, yarn: perplexity × 0.4"
    ) in said


def test_a_claim_is_shown_only_where_the_numbers_show_it() -> None:
    def shows(form: str, sort: str, perplexity: float, exact: float) -> bool:
        scores = {"none": (20.0, 0.3), "pi": (perplexity, exact), "yarn": (8.0, 0.8)}
        return " Shown here." in experiment_page.pi(past(form, (sort,), scores))[0]

    better, worse, apart = (4.0, 0.8), (80.0, 0.1), (4.0, 0.1)
    shown = {("blocks", "dilated"): better, ("blocks", "same"): worse, ("text", "same"): better,
             ("arithmetic", "same"): apart}  # fmt: skip
    for (form, sort), right in shown.items():
        assert [shows(form, sort, *scores) for scores in (better, worse, apart)] == [
            scores == right for scores in (better, worse, apart)
        ]


def test_the_page_and_the_plots_are_made_from_records_alone(tmp_path: Path) -> None:
    every = [
        *blocks("recall", lambda size: 3 / size), *blocks("copy", lambda size: 0.7, (4, 16, 64), 1),
        *problems(lambda size: 0.1 / size),
        *past("blocks", ("dilated",), DIFFERENT),
    ]  # fmt: skip
    written = experiment_page.write(every, tmp_path)
    names = [f"experiment_{name}.{kind}" for name in ("block", "igsm", "pi") for kind in ("png", "svg")]
    assert sorted(path.name for path in written) == sorted(["experiments.md", *names])
    assert all(path.stat().st_size > 1000 for path in written)
    page = (tmp_path / "experiments.md").read_text(encoding="utf-8")
    assert all(f"![{name}](experiment_{name}.png)" in page for name in ("block", "igsm", "pi"))
    assert page == experiment_page.document(every)


def test_a_single_model_of_each_kind_still_has_its_tables() -> None:
    every = [
        blocks("recall", lambda size: 3 / size)[0],
        problems(lambda size: 0.1)[0],
        past("text", ("same",), DIFFERENT)[0],
    ]
    assert len([as_text(table) for table in experiments.tables(every)]) == 3
    assert "so no line" in experiment_page.document(every)
    assert experiments.tables([]) == []
