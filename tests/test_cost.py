"""What a cell will cost: FLOPs against torch's own counter, parameters against the model, rates against known ones."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fakes import Coins, FakeEngine, Letters, cell, ids, loaded, tiny, tiny_config, writer
from ropebench.amounts import duration, flop, size
from ropebench.cost import Rates, Shape, attention_flops, flops, linear_flops, peak_bytes, shape_of, total
from ropebench.engine import Engine
from ropebench.overview import totals
from ropebench.prompt import Encoder
from ropebench.rates import fitted, probe, rates_for, remember
from ropebench.run import run_cells
from ropebench.store import Stored, read, samples
from ropebench.work import DryRunner, Work, one_pass

HARDWARE = {"name": "a machine", "threads": 1}


def shape(kind: str = "llama", **changes: Any) -> Shape:
    found = shape_of(tiny_config(kind, **changes))
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt_neox"])
def test_parameters_are_the_models_own(kind: str) -> None:
    assert shape(kind).parameters == sum(p.numel() for p in tiny(kind).parameters())


def test_tied_embeddings_are_counted_once() -> None:
    apart, tied = shape(tie_word_embeddings=False), shape(tie_word_embeddings=True)
    assert apart.parameters - tied.parameters == 500 * 32
    assert apart.active == tied.active  # neither the embedding nor the head is of the decoder's matrices


def test_llama_3_8b_by_hand() -> None:
    from transformers import LlamaConfig

    found = shape_of(
        LlamaConfig(
            vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
            num_attention_heads=32, num_key_value_heads=8,
        )
    )  # fmt: skip
    assert found is not None
    assert found.parameters == 8_030_261_248  # what its model card calls 8.03B
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    assert found.active == 32 * layer
    one = Work(prefill=1000, pairs=500_500, rows=999)
    assert linear_flops(found, 1000, 999) == 2 * 32 * layer * 1000 + 2 * 128256 * 4096 * 999
    assert attention_flops(found, one) == 4 * 32 * 128 * 32 * 500_500


def test_of_a_mixture_only_the_experts_in_use_count() -> None:
    sizes = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    found = shape("qwen3_moe", **sizes)
    experts = 2 * 8 * 3 * 32 * 16  # layers × experts × three matrices
    assert found.matrices - found.active == experts * 6 // 8


@pytest.mark.parametrize("rows", [1, 49])
def test_flops_of_matrices_are_those_that_torch_counts(rows: int) -> None:
    model = tiny("llama")
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        hidden = model.model(torch.tensor([ids(50)])).last_hidden_state
        model.lm_head(hidden[:, -rows:])
    counted = counter.get_flop_counts()["Global"]
    matrices = sum(number for kind, number in counted.items() if "attention" not in str(kind))
    assert linear_flops(shape(), 50, rows) == matrices


def test_attention_counts_pairs_that_are_not_masked() -> None:
    found = shape()
    assert one_pass(50).pairs == sum(range(1, 51))
    assert (one_pass(30) + one_pass(20, 30)).pairs == one_pass(50).pairs  # going on costs what is left
    assert attention_flops(found, one_pass(50)) == 2 * 4 * (8 + 8) * 2 * 1275
    near = dataclasses.replace(found, windowed=1, window=4)
    assert attention_flops(near, one_pass(50)) == 2 * 4 * 16 * (1275 + 50 * 4)


def test_the_dry_runner_feeds_what_the_engine_feeds() -> None:
    model = tiny()
    engine, dry = Engine(model, Encoder(Letters())), DryRunner()
    engine.end_ids = frozenset()
    text = ids(200)
    calls: list[Any] = [
        lambda on: on.nll(text[:100], True),
        lambda on: on.generate(text[:120], 5),
        lambda on: on.generate([*text[:90], *ids(60, 1)], 3),
        lambda on: on.generate(ids(50, 2), 1),
        lambda on: on.generate([*ids(50, 2)[:5], *text[:95]], 1),  # what is common is not worth going on from
        lambda on: on.nll(text, False),
        lambda on: on.nll(text, True, False),
        lambda on: on.generate(text, 4, (), False),
    ]
    for number, call in enumerate(calls):
        call(engine)
        call(dry)
        assert dry.tokens_fed == engine.tokens_fed, number


def test_rates_come_back_out_of_the_times_they_made() -> None:
    found, true = shape(), Rates(2e-9, 5e-9, 0.01, "")
    rows = [Work(n, s, one_pass(n).pairs + s * n, s or n - 1) for n, s in ((64, 0), (512, 0), (4096, 0), (64, 8))]
    times = [(work, true.seconds(found, work)) for work in rows]
    fit = fitted(found, times, "")  # type: ignore[arg-type]
    assert fit is not None
    assert [fit.linear, fit.attention, fit.step] == pytest.approx([2e-9, 5e-9, 0.01], rel=1e-6)
    no_steps = fitted(found, times[:3], "")  # type: ignore[arg-type]
    assert no_steps is not None
    assert no_steps.step is None
    assert no_steps.seconds(found, rows[3]) is None  # decoding was not measured, so it is not known
    assert fitted(found, [], "") is None


def test_no_rate_is_negative() -> None:
    faster = [(Work(64, 0, one_pass(64).pairs, 63), 1.0), (Work(512, 0, one_pass(512).pairs, 511), 2.0)]
    fit = fitted(shape(), faster, "")
    assert fit is not None
    assert min(fit.linear, fit.attention) >= 0


def test_a_probe_tells_the_two_terms_apart_and_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROPEBENCH_CACHE", str(tmp_path))
    one = cell()
    one = dataclasses.replace(one, card=dataclasses.replace(one.card, config=tiny_config("llama")))
    found, true, now = shape(), Rates(3e-8, 7e-8, 0.002, ""), [0.0]

    class Timed(FakeEngine):
        def _call(self, ids: Any) -> None:
            n = len(ids)
            now[0] += true.seconds(found, Work(n, 0, one_pass(n).pairs, n - 1)) or 0

        def generate(self, ids: Any, max_new_tokens: int, stop: Any = (), reuse: bool = True) -> Any:
            now[0] += 0.002 * max_new_tokens
            return "", (2,) * max_new_tokens

    rates = probe(one, Timed(), 4096, clock=lambda: now[0])
    assert [rates.linear, rates.attention, rates.step] == pytest.approx([3e-8, 7e-8, 0.002], rel=1e-6)
    assert rates_for(one, Stored(), HARDWARE) is None
    remember(one, HARDWARE, rates)
    again = rates_for(one, Stored(), HARDWARE)
    assert again is not None
    assert (again.linear, again.basis) == (rates.linear, "an earlier probe")
    assert rates_for(one, Stored(), {"name": "another machine", "threads": 1}) is None


def test_stored_samples_tell_the_rates_of_the_same_hardware_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROPEBENCH_CACHE", str(tmp_path / "cache"))
    plain = cell(Coins(), n=8)
    one = dataclasses.replace(plain, card=dataclasses.replace(plain.card, config=tiny_config("llama")))
    fake = loaded()
    fake.hardware = HARDWARE
    run_cells([one], fake, Stored(), writer(tmp_path), engine=FakeEngine())
    assert {row["cost"]["new_tokens"] for row in samples(tmp_path)} == {1}
    rates = rates_for(one, Stored.read(tmp_path), HARDWARE)
    assert rates is not None
    assert rates.basis == "8 stored samples"
    assert rates_for(one, Stored.read(tmp_path), {**HARDWARE, "threads": 2}) is None
    assert rates_for(dataclasses.replace(one, dtype="bfloat16"), Stored.read(tmp_path), HARDWARE) is None


def test_the_record_carries_the_estimate(tmp_path: Path) -> None:
    one, other = cell(n=2), cell(length=16, n=1)
    expected = {"tokens": 64, "flops": 10**9, "peak_bytes": 10**6, "seconds": 1.5, "basis": "a probe"}
    run_cells([one, other], loaded(), Stored(), writer(tmp_path), engine=FakeEngine(), estimates={one.id: expected})
    assert {r["cell_id"]: r["cost"]["estimate"] for r in read(tmp_path)} == {one.id: expected, other.id: None}


def test_a_total_of_unknowns_is_unknown() -> None:
    known = {"tokens": 5, "flops": 7, "peak_bytes": 9, "seconds": 2.0, "basis": "a probe"}
    assert total([known, {**known, "peak_bytes": 11}]) == {
        "tokens": 10, "flops": 14, "seconds": 4.0, "peak_bytes": 11, "basis": "a probe",
    }  # fmt: skip
    assert total([known, {**known, "seconds": None}])["seconds"] is None
    assert total([known, None])["tokens"] is None
    rows = [{"method": m, "task": t, "tokens_left": 1, "estimate": known} for m in "ab" for t in "xyz"]
    sums = totals(rows)
    assert {part: found["tokens"] for part, found in sums["by_task"].items()} == {"x": 10, "y": 10, "z": 10}
    assert {part: found["cells"] for part, found in sums["by_method"].items()} == {"a": 3, "b": 3}
    assert sums["all"]["flops"] == 42


def test_memory_grows_with_the_cache_and_not_with_the_logits() -> None:
    found, one = shape(), cell()
    short, long = (peak_bytes(found, one, Work(n, 0, 0, n - 1, plain=n)) for n in (4096, 65536))
    assert long / short < 17  # states and attention of one layer, linear in the length
    assert long < 65536 * 500 * 4  # the logits alone
    held = peak_bytes(found, one, Work(65536, 3, 0, 4, cached=65539))
    keys_and_values = 65539 * 2 * 2 * (8 + 8) * 4
    assert held > keys_and_values
    half = peak_bytes(found, dataclasses.replace(one, dtype="bfloat16"), Work(65536, 3, 0, 4, cached=65539))
    assert half < 0.55 * held
    eager = peak_bytes(found, dataclasses.replace(one, attention="eager"), Work(4096, 0, 0, 4095, plain=4096))
    assert eager > 4 * 4096**2 * 4


def test_amounts_are_legible() -> None:
    times = [None, 0.041, 4.1, 41, 59.6, 185, 7620, 3600 * 76]
    said = ["unknown", "0.04 s", "4.1 s", "41 s", "1 min 00 s", "3 min 05 s", "2 h 07 min", "3 d 4 h"]
    assert [*map(duration, times)] == said
    assert [*map(flop, (None, 999, 1.5e12, 2e18))] == ["unknown", "999 FLOP", "1.5 TFLOP", "2 EFLOP"]
    assert [*map(size, (0, 1.31e9, 999.6e6))] == ["0 B", "1.31 GB", "1 GB"]
    assert flops(shape(), Work()) == 0
    assert json.dumps(total([]))
