"""`lens experiment`: every model is trained once, from random streams of its own; its data depend as far as is said."""

import json
import math
from dataclasses import asdict
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from ropebench import store
from ropebench.cli import main
from ropebench.errors import UsageError
from ropebench.igsm import MODULUS
from ropebench.lens import dependence, spectrum
from ropebench.lens.experiment import block, forms, igsm, pi, small, units, words
from ropebench.lens.experiment.law import Point, fitted
from ropebench.lens.experiment.small import HELD_OUT, TRAINING, Training, learnt, look, own_seed, stream, untrained
from ropebench.lens.tiny.recipe import Shape

SYMBOLS = forms.SYMBOLS


def some(n: int) -> list[units.Unit]:
    return [units.Unit("block", 1, {"size": size}, f"size {size}") for size in range(n)]


def test_a_run_that_was_killed_goes_on_with_no_model_twice(tmp_path: Path) -> None:
    measured, said, kills = list[int](), list[str](), [2]

    def measure(setting: dict) -> dict:
        if setting["size"] in kills:
            kills.clear()
            raise KeyboardInterrupt
        measured.append(setting["size"])
        return {"theta": setting["size"] / 10}

    with pytest.raises(KeyboardInterrupt):
        units.run(some(4), measure, tmp_path, said.append, ["ropebench"])
    assert len(units.stored(store.read(tmp_path))) == 2
    records = units.run(some(4), measure, tmp_path, said.append, ["ropebench"])
    assert measured == [0, 1, 2, 3]
    assert [record["lens"]["measured"]["theta"] for record in records] == [0.0, 0.1, 0.2, 0.3]
    assert "2 of 4 models are stored already" in said
    assert units.run(some(4), measure, tmp_path, said.append, ["ropebench"]) == records
    assert measured == [0, 1, 2, 3]
    assert {r["kind"] for r in store.read(tmp_path)} == {"lens"}
    assert store.newest_ok(store.read(tmp_path)) == []  # no cell of a sweep


def test_a_model_is_what_its_setting_says_and_nothing_else() -> None:
    one, other = units.Unit("block", 1, {"size": 4}, "a"), units.Unit("block", 1, {"size": 4}, "in other words")
    assert one.id == other.id
    others = [units.Unit("block", 2, {"size": 4}, "a"), units.Unit("pi", 1, {"size": 4}, "a"), *some(3)]
    assert len({one.id, *(unit.id for unit in others)}) == 6


def test_every_setting_has_random_streams_of_its_own() -> None:
    every = [unit.setting for level in ("default", "full") for unit in block.units(level)]
    every += [unit.setting for module in (igsm, pi) for unit in module.units("default")]
    seeds = {json.dumps(setting, sort_keys=True): own_seed(setting) for setting in every}
    assert len(set(seeds.values())) == len(seeds)
    draws = [stream(use, seed, part).random(4).tolist()
             for use in (TRAINING, HELD_OUT) for seed in list(seeds.values())[:3] for part in (0, 1)]  # fmt: skip
    assert all(one != other for one, other in combinations(draws, 2))
    assert stream(TRAINING, 5).random() == stream(TRAINING, 5).random()


def test_the_same_setting_gives_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "LOOKED_AT", 3)
    unit = block.units("quick", ["recall"], [4], 1)[0]

    def draw(rng: np.random.Generator, rows: int) -> object:
        return forms.recall(rng, rows, 16, 4)

    (_, one), (_, other) = learnt(unit.setting, draw), learnt(unit.setting, draw)
    assert one == other
    assert one["spectrum"]["shares"] != one["initial"]["shares"]
    assert set(one["spectrum"]["theta_eff"]) == set(spectrum.VARIANTS)


def test_before_training_the_spectrum_is_even_to_a_fifth() -> None:
    """Where there are enough heads and symbols to average over; a single small model has not."""
    model = untrained(Shape(512, 256, 2, 8, 32, 128, 10_000.0, window=128), 3).eval()
    found = look(model, np.random.default_rng(0).integers(0, 512, (8, 128)))
    assert found["unevenness"] < 0.2
    assert found["concentration"] < 0.01
    frequencies = np.log(np.array(found["inv_freq"]))
    assert math.log(found["theta_eff"]["causal/mean_square/share"]) == pytest.approx(frequencies.mean(), abs=0.3)


def agreement(batch: object, distance: int) -> float:
    """How often the token `distance` before a scored target is that target."""
    scored = batch.scored.copy()
    scored[:, :distance] = False
    rows, places = np.nonzero(scored)
    return float((batch.ids[rows, places - distance] == batch.targets[rows, places]).mean())


@pytest.mark.parametrize("size", [8, 32])
def test_targets_depend_on_their_block_and_on_nothing_before_it(size: int) -> None:
    by_chance, rows = 1 / SYMBOLS, 300
    made = {name: form.make(np.random.default_rng(1), rows, 20 * size, size) for name, form in forms.FORMS.items()}
    shown = forms.SHOWN + (1 - forms.SHOWN) * by_chance
    off = 5 * math.sqrt(0.25 / made["recall"].scored.sum())
    for name in ("recall", "recall_short", "recall_fixed"):  # evenly over the block, and a sharp end
        assert [agreement(made[name], r) for r in (1, size // 2, size - 1)] == pytest.approx([shown] * 3, abs=off)
        assert [agreement(made[name], r) for r in (size, size + 3)] == pytest.approx([by_chance] * 2, abs=off)
    one = 1 / (size - 1)
    assert [agreement(made["nearest"], r) for r in (1, size - 1)] == pytest.approx([one] * 2, abs=off)
    falling = [agreement(made["repeat"], r) - by_chance for r in (1, size // 2, size)]
    least = forms.SHOWN**2 * (1 - by_chance)
    assert falling == pytest.approx([least * (1 - 1 / size), least / 2, 0], abs=0.006)
    copied = forms.COPIED + (1 - forms.COPIED) * by_chance
    assert agreement(made["copy"], size) == pytest.approx(copied, abs=0.01)
    assert agreement(made["copy"], size - 1) == pytest.approx(by_chance, abs=0.01)


def test_what_is_recalled_cannot_be_read_off_its_own_place_or_the_block_before() -> None:
    batch = forms.recall(np.random.default_rng(0), 400, 64, 8)
    there = batch.ids[batch.scored] == batch.targets[batch.scored]
    assert there.mean() == pytest.approx(1 / SYMBOLS, abs=0.02)
    assert np.flatnonzero(batch.scored.any(0)).min() >= 7  # a block is seen as a whole before it is asked for


def test_a_planted_width_is_recovered() -> None:
    """Tokens of one block are alike in proportion to 1 − r/B, their information falls as its square, and nine tenths of
    that lie within (1 − ∛0.1) of a block."""
    for size in (16, 64):
        rows = forms.recall(np.random.default_rng(size), 8, 40_000, size).ids
        found = dependence.width(dependence.profile([[row] for row in rows], dependence.grid(3 * size), SYMBOLS))
        planted = (1 - 0.1 ** (1 / 3)) * size
        assert found.interval.value == pytest.approx(planted, rel=0.12)
        assert not found.open


def test_dilated_blocks_are_the_training_data_dilated() -> None:
    rows = {s: pi.recall(np.random.default_rng(s), 8, 30_000, s).ids for s in (1, 4)}
    near, far = (dependence.profile([[row] for row in rows[s]], [8 * s, 16 * s, 32 * s], SYMBOLS).mi for s in (1, 4))
    assert far == pytest.approx(near, rel=0.2, abs=1e-3)
    assert near[2] < near[0] / 10


def test_a_planted_slope_is_recovered_as_often_as_the_interval_says() -> None:
    """Sizes lie off the line by more than seeds differ, which an interval over models would not see."""
    rng, inside, trials = np.random.default_rng(0), [0, 0, 0], 150
    for _ in range(trials):
        points = []
        for size in (4, 8, 16, 32, 64):
            off = rng.normal(0, 0.1)
            points += [Point(size, seed, 3.02 / size * math.exp(off + rng.normal(0, 0.03))) for seed in range(3)]
        line = fitted(points)
        assert line is not None
        found = ((line.slope, -1.0), (line.constant, 3.02), (line.at_minus_one, 3.02))
        inside = [n + (interval.low <= value <= interval.high)
                  for n, (interval, value) in zip(inside, found, strict=True)]  # fmt: skip
    assert all(0.9 <= n / trials <= 0.99 for n in inside), inside


def test_means_that_happen_to_lie_on_a_line_do_not_hide_the_scatter_of_seeds() -> None:
    lucky = [Point(size, seed, 3 / size * math.exp(0.1 * (seed - 1) + 1e-4 * (seed == 1) * (size == 8)))
             for size in (4, 8, 16, 32) for seed in range(3)]  # fmt: skip
    line = fitted(lucky)
    assert line is not None
    assert line.at_minus_one.high / line.at_minus_one.low == pytest.approx(
        math.exp(2 * 3.182 * 0.1 / math.sqrt(12)), rel=1e-3
    )


def test_a_line_needs_sizes_and_says_what_it_lacks() -> None:
    assert fitted([Point(8, seed, 0.3) for seed in range(3)]) is None
    two = fitted([Point(size, 0, 3 / size) for size in (8, 16)])
    assert two is not None
    assert two.slope.value == pytest.approx(-1)
    assert two.slope.low is None
    assert two.off is None
    exact = fitted([Point(size, 0, 2 / size) for size in (4, 8, 16)])
    assert exact is not None
    assert (exact.constant.value, exact.at(10)) == pytest.approx((2.0, 0.2))


def test_word_problems_are_our_generators_and_answers_are_where_they_stand() -> None:
    ids, marked = words.problems(np.random.default_rng(2), 3, 2000)
    back = {place: word for word, place in words.vocabulary().items()}
    text = [back[i] for i in ids]
    assert marked.sum() == text.count(words.END)
    for place in np.flatnonzero(marked):
        assert text[place - 3 : place] == ["the", "answer", "is"]
        assert 0 <= int(text[place]) < MODULUS
        assert text[place + 1 : place + 3] == [".", words.END]
    lengths = [words.checked(operations, 512) for operations in (1, 4, 8)]
    assert lengths == sorted(lengths)


def test_arithmetic_answers_are_the_running_total() -> None:
    batch = pi.arithmetic(np.random.default_rng(0), 50, 40, 1)
    rows, places = np.nonzero(batch.scored)
    assert set(batch.ids[rows, places - 1]) == {pi.EQUALS}
    total = (batch.ids[rows, places - 4] + batch.ids[rows, places - 2]) % 10
    assert (batch.targets[rows, places] == total).all()


def test_default_levels_have_what_a_fit_needs() -> None:
    main_form = [unit.setting for unit in block.units("default") if unit.setting["form"] == block.MAIN]
    assert len({setting["size"] for setting in main_form}) >= 5
    assert len(main_form) == 3 * len({setting["size"] for setting in main_form})
    assert {unit.setting["form"] for unit in block.units("default")} == set(forms.FORMS)
    for module in (block, igsm, pi):
        sizes = [len(module.units(level)) for level in ("quick", "default", "full")]
        assert sizes == sorted(set(sizes))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("block --sizes 2", "--sizes 2: a block must have from 4 to "),
        ("block --sizes 5000", "outside that π ÷ size is not well inside"),
        ("block --sizes four", "write whole numbers with commas between"),
        ("block --forms recal", "did you mean 'recall'"),
        ("block --seeds 0", "--seeds 0 must be at least 1"),
        ("block --threads 0", "--threads 0 must be at least 1"),
        ("igsm --sizes 9000", "operations must be from 1 to"),
        ("igsm --forms recall", "igsm has one kind of data"),
        ("pi --sizes 4", "the pi experiment has one size of each kind"),
        ("pi --forms tex", "text"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_trained(
    given: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lens", "experiment", *given.split(), "--results", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_problems_that_no_context_holds_are_refused() -> None:
    with pytest.raises(UsageError, match=r"has about .* tokens, the context of this experiment 64"):
        words.checked(4, 64)


def test_the_command_trains_stores_and_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block, "MEASURED", 2000)
    monkeypatch.setattr(small, "LOOKED_AT", 3)
    folder, out = tmp_path / "kept", tmp_path / "out"
    given = ["lens", "experiment", "block", "--quick", "--sizes", "4,8", "--seeds", "1", "--results", str(folder)]
    assert main(given) == 0
    first = capsys.readouterr()
    assert "block · recall · effective frequency by block length" in first.out
    assert "these numbers only show that the command runs" in first.out
    assert main([*given, "--json", "--out", str(out)]) == 0
    second = capsys.readouterr()
    assert "2 of 2 models are stored already" in second.err
    assert [one["setting"]["size"] for one in json.loads(second.out)] == [4, 8]
    assert {path.name for path in out.iterdir()} == {
        "experiments.md", "experiment_block.png", "experiment_block.svg"
    }  # fmt: skip
    assert len(store.read(folder)) == 2


def test_a_setting_holds_all_of_the_training() -> None:
    """Another number of steps is another model, and is trained anew."""
    unit = block.units("default")[0]
    assert unit.setting["training"] == asdict(Training())
    changed = units.Unit(unit.experiment, unit.version, {**unit.setting, "training": asdict(Training(steps=7))}, "")
    assert changed.id != unit.id
