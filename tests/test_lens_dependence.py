"""The dependence of a corpus on distance: a planted one is found at its size and width, none is found where there is
none, and an interval holds what it should."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ropebench.lens import dependence
from ropebench.lens.dependence import folded, grid, histogram_mi, profile, self_similarity, width

CLASSES = 16


def blocks(length: int, repeats: float, tokens: int = 20_000, groups: int = 12, seed: int = 0):
    """Sequences of latent blocks of `length` with a random start: a token is its block's symbol with probability
    `repeats`, noise otherwise."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(groups):
        place = (np.arange(tokens) + rng.integers(length)) // length
        hidden = rng.integers(CLASSES, size=place[-1] + 1)[place]
        found.append([np.where(rng.random(tokens) < repeats, hidden, rng.integers(CLASSES, size=tokens))])
    return found


def exact_mi(same: float) -> float:
    """Of two uniform tokens that are one draw with probability `same`, else independent: by the definition."""
    joint = np.full((CLASSES, CLASSES), (1 - same) / CLASSES**2) + np.eye(CLASSES) * same / CLASSES
    return float((joint * np.log(joint * CLASSES**2)).sum())


def planted(length: int, repeats: float, longest: int) -> tuple[list[float], float]:
    """The true profile at every distance 1 … longest, and the distance within which 90 % of its sum lies."""
    true = [exact_mi(repeats**2 * max(0.0, 1 - r / length)) for r in range(1, longest + 1)]
    sums = np.cumsum(true)
    return true, float(np.interp(0.9 * sums[-1], np.concatenate([[0], sums]), np.arange(longest + 1)))


@pytest.mark.parametrize("length", [8, 32])
def test_a_planted_dependence_is_found_at_its_size_and_width(length):
    true, wanted = planted(length, 0.6, 4 * length)
    found = profile(blocks(length, 0.6), grid(4 * length), CLASSES)
    for r, mi, interval in zip(found.distances, found.mi, found.intervals(0.999), strict=True):
        assert interval.low <= true[r - 1] <= interval.high, r
        assert mi == pytest.approx(true[r - 1], abs=0.1 * true[0])
    w = width(found)
    assert w.interval.low <= wanted <= w.interval.high
    assert w.interval.value == pytest.approx(wanted, rel=0.05)
    assert not w.open
    assert w.interval.high / w.interval.low < 1.5  # an interval that says something
    half = dependence.width_within(found.distances, found.mi, 2 * length)
    assert half == pytest.approx(w.interval.value, rel=0.1)  # a width of its own: not of how far was looked


def test_a_power_law_has_a_width_of_how_far_was_looked_alone():
    distances = grid(4096)
    mi = [1 / r for r in distances]
    whole, half = (dependence.width_within(distances, mi, longest) for longest in (4096, 2048))
    assert whole / half == pytest.approx(1.87, abs=0.05)  # 90 % of ln(longest): longest^0.9 and its factor


def test_copies_from_one_offset_have_that_width():
    rng = np.random.default_rng(1)
    groups = []
    for _ in range(8):
        tokens = rng.integers(CLASSES, size=10_000)
        for at in np.flatnonzero(rng.random(10_000) < 0.4):
            if at >= 12:
                tokens[at] = tokens[at - 12]
        groups.append([tokens])
    found = profile(groups, grid(32), CLASSES)
    assert int(found.distances[np.argmax(found.mi)]) == 12
    assert found.mi[11] == pytest.approx(exact_mi(0.4), rel=0.1)
    assert 11 < width(found).interval.value < 14


def test_tokens_in_random_order_come_out_at_zero_though_the_plug_in_does_not():
    rng = np.random.default_rng(2)
    groups = [[rng.permutation(tokens) for tokens in group] for group in blocks(32, 0.6, 4_000)]
    found = profile(groups, grid(64), CLASSES)
    assert (found.plug_in > 0.5 * found.bias).all()  # what is to be taken off
    np.testing.assert_allclose(found.baseline, found.bias, rtol=0.35)  # (V − 1)²/(2N), for independent tokens
    np.testing.assert_allclose(found.shuffled, found.bias, rtol=0.35)
    assert abs(found.mi.mean()) < 0.2 * found.bias.mean()
    assert not found.shown.any()
    w = width(found)
    assert w.interval.value is None
    assert w.interval.kind == "no dependence shown"


def test_runs_do_not_leave_a_dependence_beyond_them():
    """Independent pairs have the corpus's runs; tokens in random order have none, and would leave some anywhere."""
    rng, groups = np.random.default_rng(3), []
    for _ in range(12):  # a symbol lasts 64 tokens on average
        place = np.cumsum(rng.random(10_000) < 1 / 64)
        groups.append([rng.integers(CLASSES, size=place[-1] + 1)[place]])
    found = profile(groups, [700, 1000, 1400], CLASSES)
    assert not found.shown.any()
    assert (found.shuffled < 0.1 * found.plug_in).all()  # what the usual baseline would have left
    assert (np.abs(found.mi) < 0.3 * found.plug_in).all()


def test_intervals_hold_the_truth_as_often_as_they_say():
    held = []
    for seed in range(40):
        found = profile(blocks(8, 0.6, 1_500, seed=seed), [2, 4], CLASSES)
        held += [
            i.low <= exact_mi(0.36 * (1 - r / 8)) <= i.high for r, i in zip((2, 4), found.intervals(), strict=True)
        ]
    assert 68 <= sum(held) <= 80  # of 80; 95 % is 76


def test_a_dilated_profile_is_self_similar_and_another_is_not():
    fine, coarse = (profile(blocks(length, 0.6, 12_000), grid(4 * length), CLASSES) for length in (32, 16))
    good = self_similarity(coarse, fine, 2.0)
    assert good.score.value > 0.95
    assert good.score.low <= good.score.value <= good.score.high
    assert 1.7 < good.dilation < 2.3
    bad = self_similarity(coarse, fine, 8.0)
    assert bad is None or bad.score.value < 0.5
    still = self_similarity(coarse, fine, 1.0)  # the same size, another width
    assert still.score.value < good.score.value - 0.2
    weaker = profile(blocks(32, 0.4, 12_000), grid(128), CLASSES)
    other = self_similarity(coarse, weaker, 2.0)
    assert other.shape.value > 0.9 > other.score.value  # the shape alone is alike


def test_rare_tokens_fold_into_one_class_and_none_is_lost():
    sequences, classes, own = folded([np.array([5, 5, 5, 9, 9, 2]), np.array([7, 9, 5])], 3)
    assert classes == 3
    assert [row.tolist() for row in sequences] == [[0, 0, 0, 1, 1, 2], [2, 1, 0]]
    assert own == pytest.approx(7 / 9)
    assert folded([np.array([4, 8])], 64)[1:] == (2, 1.0)
    assert grid(5) == [1, 2, 3, 4, 5]
    assert grid(64)[-1] == 64
    assert set(range(1, 17)) <= set(grid(64))


def test_mutual_information_of_known_tables():
    assert histogram_mi(np.eye(4)) == pytest.approx(math.log(4))
    assert histogram_mi(np.ones((4, 4))) == pytest.approx(0, abs=1e-12)
    counts = dependence.joint_counts([[np.array([0, 1, 0, 1, 0])], [np.array([1])]], 2, 2)
    assert counts.tolist() == [[[2, 0], [0, 1]], [[0, 0], [0, 0]]]  # within a sequence, none across


def test_what_cannot_be_had_is_refused():
    with pytest.raises(ValueError, match="at least 2 groups"):
        profile([[np.arange(4)]], [1], 4)
    with pytest.raises(ValueError, match="no two tokens of a sequence are 9 apart"):
        profile([[np.arange(4)], [np.arange(4)]], [9], 4)
    few = profile(blocks(8, 0.6, groups=3), grid(16), CLASSES)
    assert few.intervals()[0].low is None
    assert not few.shown.any()
