"""The frequency energy of a model: equal to its definition worked out slowly, even at initialisation, blind to what it
should be blind to, and stable where the model's use of frequencies is."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import fakes
from ropebench.apply import applied
from ropebench.geometry import Frequencies
from ropebench.lens import spectrum
from ropebench.lens.bands import EDGES, bands_of, distance_between, histograms, moments, summary
from ropebench.lens.looking import random_weights
from ropebench.lens.watching import pair_channels

IDS = fakes.ids(24)


def by_hand(model, ids):
    """Energies from the layers' own inputs and projections, without RoPE, one pair of tokens after the other."""
    shown = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    found = {f"{pairs}/{mean}": [] for pairs in spectrum.PAIRS for mean in spectrum.MEANS}
    for layer, inside in zip(model.model.layers, shown, strict=False):
        x = layer.input_layernorm(inside)[0]
        q, k = (project(x).view(len(ids), -1, 8) for project in (layer.self_attn.q_proj, layer.self_attn.k_proj))
        rows = {name: np.zeros((4, 4)) for name in found}
        for head in range(4):
            for pair in range(4):
                size = [[math.hypot(*(float(one[t, h, pair + half]) for half in (0, 4))) for t in range(len(ids))]
                        for one, h in ((q, head), (k, head // 2))]  # fmt: skip
                every = {(t, s): size[0][t] * size[1][s] for t in range(len(ids)) for s in range(len(ids))}
                seen = {"causal": [a for (t, s), a in every.items() if s <= t], "all": list(every.values())}
                for pairs, sizes in seen.items():
                    rows[f"{pairs}/mean_square"][head, pair] = sum(a * a for a in sizes) / len(sizes)
                    rows[f"{pairs}/square_mean"][head, pair] = (sum(sizes) / len(sizes)) ** 2
        for name, row in rows.items():
            found[name].append(row)
    return {name: np.stack(row) for name, row in found.items()}


def test_energies_are_those_of_the_definition_worked_out_slowly():
    model = fakes.tiny()
    with torch.no_grad():
        expected = by_hand(model, IDS)
    found = spectrum.energies(model, IDS)
    assert found.keys() == expected.keys()
    for name, energy in found.items():
        np.testing.assert_allclose(energy, expected[name], rtol=1e-5, err_msg=name)
    causal, every = found["causal/mean_square"], found["all/mean_square"]
    assert not np.allclose(causal, every)  # the variants are not one number under several names
    for pool in spectrum.POOLS:
        share = spectrum.shares(found, f"causal/mean_square/{pool}")
        rows = causal.reshape(8, 4)
        wanted = (rows / rows.sum(1, keepdims=True)).mean(0) if pool == "share" else rows.sum(0) / rows.sum()
        np.testing.assert_allclose(share, wanted)


def test_rotation_and_temperature_do_not_move_a_first_layer_spectrum():
    """Deeper layers see what the first attended to, which a method may well change; the measure itself does not."""
    model = fakes.tiny()
    plain = spectrum.energies(model, IDS)["causal/mean_square"][0]
    with applied(model, Frequencies(np.array([0.9, 0.5, 0.02, 0.0]), attention_factor=1.3)):
        moved = spectrum.energies(model, IDS)["causal/mean_square"][0]
    np.testing.assert_allclose(moved, plain * 1.3**4, rtol=1e-4)
    np.testing.assert_allclose(spectrum.head_shares(moved), spectrum.head_shares(plain), rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "changes", "pairs"),
    [
        ("llama", {}, [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("cohere", {}, [(0, 1), (2, 3), (4, 5), (6, 7)]),  # neighbours, not halves
        ("gpt_neox", {"rotary_pct": 0.5}, [(0, 2), (1, 3)]),  # half of the head turns
        ("qwen3", {}, [(0, 4), (1, 5), (2, 6), (3, 7)]),  # with norms between projection and rotation
    ],
)  # fmt: skip
def test_which_channels_are_a_pair_is_seen_on_the_model(kind, changes, pairs):
    found = pair_channels(fakes.tiny(kind, **changes))
    assert {layer: [tuple(map(int, two)) for two in own] for layer, own in found.items()} == {0: pairs, 1: pairs}


def test_at_initialisation_every_pair_has_its_even_share_to_20_percent():
    """Of one small model the heads are few, and each a draw; eight draws of 96 heads stand for the expectation."""
    config = fakes.tiny_config(
        "llama", hidden_size=64, num_hidden_layers=12, num_attention_heads=8, num_key_value_heads=8, head_dim=16
    )
    found = random_weights(config, "sdpa", [tuple(fakes.ids(48, i)) for i in range(2)], 8, 0, "cpu", lambda _: None)
    for name, of in found["variants"].items():
        assert of["unevenness"] < 0.2, name
        assert of["concentration"]["high"] < 0.01, name
    assert len({tuple(row["shares"]) for row in found["variants"].values()}) == len(spectrum.VARIANTS)


def test_measures_of_a_spectrum():
    inv_freq = np.array([1.0, 0.1, 0.01, 0.001])
    even, single = np.full(4, 0.25), np.array([0.0, 1.0, 0.0, 0.0])
    assert spectrum.effective_frequency(even, inv_freq) == pytest.approx(10**-1.5)
    assert spectrum.effective_frequency(single, inv_freq) == pytest.approx(0.1)
    half = spectrum.effective_frequency(np.array([0.25, 0.25, 0, 0.5]), np.array([1.0, 0.1, 0.01, 0.0]))
    assert half == pytest.approx(10**-0.5)  # a pair that stands still has no frequency
    assert spectrum.concentration(even) == pytest.approx(0)
    assert spectrum.concentration(single) == pytest.approx(1)
    assert spectrum.unevenness(even) == 0
    assert spectrum.unevenness(single) == 3
    assert spectrum.similarity(even, even) == 1
    assert spectrum.similarity(even, single) == pytest.approx(0.25)
    assert spectrum.head_shares(np.zeros(4)).tolist() == even.tolist()


def test_the_reach_of_a_positive_sum_of_cosines():
    """The first negative distance under LLaMA-2's table is 1707 (METHODS: Men et al. with d = 128, base 10,000)."""
    inv_freq = 10000.0 ** (-np.arange(64) / 64)
    assert spectrum.positive_reach(inv_freq) == 1706
    assert spectrum.positive_reach(np.array([math.pi / 2])) == 1  # cos π is below 0, cos π/2 is not
    assert spectrum.positive_reach(np.zeros(4), 1000) is None


def test_scores_are_standard_in_the_unmodified_model_and_move_with_the_table():
    model, window = fakes.tiny(), fakes.GEOMETRY.trained_length
    prompts, channels, bands = [fakes.ids(window, i) for i in range(3)], pair_channels(model), bands_of(fakes.GEOMETRY)
    assert {name: own.tolist() for name, own in bands.items()} == {
        "middle": [0, 1],
        "slow": [2, 3],
    }  # 10 turns or fewer
    standard = moments(model, prompts, channels, bands)
    own = [histograms(model, ids, channels, bands, standard) for ids in prompts]
    reference = {band: sum(one[band].sum(0) for one in own) for band in bands}
    for band in bands:
        assert abs(summary(reference[band])["mean"]) < 0.05  # all but distance 0, which is in the standard alone
        assert summary(reference[band])["deviation"] == pytest.approx(1, abs=0.05)
        assert distance_between(reference[band], reference[band]) == 0
    with applied(model, Frequencies(fakes.GEOMETRY.inv_freq(), attention_factor=1.3)):
        warm = [histograms(model, ids, channels, bands, standard) for ids in prompts]
    for band in bands:
        counts = sum(one[band].sum(0) for one in warm)
        assert counts.sum() == reference[band].sum()
        assert counts.shape == (len(EDGES) - 1,)
        assert distance_between(counts, reference[band]) > 0.02
