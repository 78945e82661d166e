"""The engine against plain forward passes of real (tiny, random) models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from fakes import ids, tiny, tokenizer
from ropebench.apply import applied
from ropebench.engine import Engine
from ropebench.geometry import geometry_of
from ropebench.prompt import Encoder
from ropebench.registry import Registry

# Kinds that do something to their logits after the head (soft cap, scale), and two kinds of router.
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "gemma2": {"final_logit_softcapping": 5.0, "attention": "eager"},
    "granite": {"logits_scaling": 3.0},
    "cohere": {"logit_scale": 0.25},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "mixtral": {"num_local_experts": 4, "output_router_logits": True},
}
STATIC = [entry.name for entry in Registry.load().of("method") if not entry.cls.length_dependent]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(tokenizer("bpe"))


@pytest.fixture(scope="module")
def llama() -> Any:
    return tiny("llama")


def full_nll(model: Any, given: list[int]) -> np.ndarray[Any, Any]:
    with torch.inference_mode():
        logits = model(torch.tensor([given])).logits[0].float()
    return torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(given[1:]), reduction="none").numpy()


@contextmanager
def rows_of(layer: Any) -> Iterator[list[int]]:
    """How many rows every call of a layer is given."""
    seen: list[int] = []
    hook = layer.register_forward_hook(lambda _, given, __: seen.append(given[0].shape[-2]))
    try:
        yield seen
    finally:
        hook.remove()


@pytest.mark.parametrize("kind", KINDS)
def test_chunked_nll_is_that_of_the_full_logits(kind: str, encoder: Encoder) -> None:
    model = tiny(kind, **KINDS[kind])
    given = ids(50)
    nll = Engine(model, encoder, chunk=16).nll(given)
    assert nll.shape == (49,)
    np.testing.assert_allclose(nll, full_nll(model, given), rtol=1e-5, atol=1e-5)


def test_nll_sends_at_most_a_chunk_to_the_output_layer(llama: Any, encoder: Encoder) -> None:
    # FAULT 22: logits for all positions at once.
    with rows_of(llama.get_output_embeddings()) as rows:
        Engine(llama, encoder, chunk=64).nll(ids(257))
    assert rows == [64, 64, 64, 64]


def test_prefill_sends_one_row_to_the_output_layer(llama: Any, encoder: Encoder) -> None:
    # FAULT 22
    with rows_of(llama.get_output_embeddings()) as rows, rows_of(llama.base_model.layers[0].mlp) as fed:
        Engine(llama, encoder).generate(ids(200), 4)
    assert rows == [1, 1, 1, 1]
    assert fed == [200, 1, 1, 1]  # the prompt goes through once; then one token at a time


def test_the_default_chunk_bounds_the_memory_of_large_vocabularies(encoder: Encoder) -> None:
    # FAULT 22: 131072 × 128256 × 4 bytes = 67.24 GB.
    engine = Engine(tiny(vocabulary=128_256, hidden_size=8, head_dim=2, tie_word_embeddings=True), encoder)
    assert 16 <= engine.chunk <= 1024
    assert engine.chunk * 128_256 * 4 <= 256 * 1024**2


def test_nothing_to_score_is_an_empty_row(llama: Any, encoder: Encoder) -> None:
    assert Engine(llama, encoder).nll([5]).shape == (0,)
    assert Engine(llama, encoder).nll([]).shape == (0,)


@pytest.mark.parametrize("name", STATIC)
def test_cached_generation_is_the_argmax_of_repeated_full_passes(name: str, llama: Any, encoder: Encoder) -> None:
    method, _ = Registry.load().build("method", name)
    table = method.frequencies(geometry_of(llama.config), 4.0, 256)
    engine = Engine(llama, encoder)
    engine.end_ids = frozenset()
    seen = set()
    for seed in range(4):
        given = ids(100 + 25 * seed, seed)
        expected: list[int] = []
        with applied(llama, table):
            _, new = engine.generate(given, 6)
            with torch.inference_mode():
                for _ in range(6):
                    logits = llama(torch.tensor([given + expected]), use_cache=False).logits
                    expected.append(int(logits[0, -1].argmax()))
        assert list(new) == expected
        seen |= set(expected)
    assert len(seen) > 4  # a model that repeats one token would prove nothing


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_nll_of_every_prefix_is_read_off_the_longest_pass(kind: str, encoder: Encoder) -> None:
    engine = Engine(tiny(kind, **KINDS[kind]), encoder)
    given = ids(256)
    whole = engine.nll(given)
    for length in (2, 32, 64, 128, 255):
        np.testing.assert_allclose(whole[: length - 1], engine.nll(given[:length]), atol=1e-4)


def test_a_prompt_beyond_the_trained_window_is_fed_whole(llama: Any, encoder: Encoder) -> None:
    # FAULT 47: a method extends 64 to 256, and prompts of 256 are not cut to the config's length.
    assert llama.config.max_position_embeddings == 64
    with rows_of(llama.base_model.layers[0].mlp) as fed:
        engine = Engine(llama, encoder)
        assert engine.nll(ids(256)).shape == (255,)
        engine.generate(ids(256), 1)
    assert fed == [256, 256]


def scripted(engine: Engine, monkeypatch: pytest.MonkeyPatch, tokens: list[int], width: int = 500) -> list[int]:
    """Make the engine's head answer with the given tokens, one a call; returns the list of calls."""
    calls: list[int] = []

    def head(hidden: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(1, 1, width)
        logits[0, 0, tokens[len(calls)]] = 1.0
        calls.append(hidden.shape[1])
        return logits

    monkeypatch.setattr(engine, "_head", head)
    return calls


@pytest.fixture
def engine(llama: Any, encoder: Encoder) -> Engine:
    return Engine(llama, encoder)


def test_generation_ends_at_the_budget(engine: Engine, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    words = encoder.text("the value is the name")
    calls = scripted(engine, monkeypatch, words)
    text, new = engine.generate(ids(8), 3)
    assert (list(new), len(calls)) == (words[:3], 3)
    assert text == encoder.decode(words[:3])
    assert engine.generate(ids(8), 0) == ("", ())


def test_generation_ends_at_an_end_of_text_id(
    engine: Engine, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = encoder.text("the")
    assert encoder.tokenizer.eos_token_id in engine.end_ids
    scripted(engine, monkeypatch, [*words, encoder.tokenizer.eos_token_id, *words])
    assert engine.generate(ids(8), 50) == ("the", tuple(words))


def test_the_models_own_end_ids_count_and_stay_as_they_are(encoder: Encoder) -> None:
    model = tiny()
    model.generation_config.eos_token_id = [7, 9]
    assert Engine(model, encoder).end_ids == {7, 9, encoder.tokenizer.eos_token_id}
    assert model.generation_config.eos_token_id == [7, 9]


def test_generation_ends_at_the_first_stop_string(
    engine: Engine, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # FAULT 44: stop strings are real newlines.
    words = encoder.text("the value\nis here\n")
    calls = scripted(engine, monkeypatch, words)
    text, new = engine.generate(ids(8), 50, stop=("\n", "value"))
    assert text == "the "
    assert encoder.decode(new).startswith("the value")
    assert len(calls) < len(words)


def test_two_generations_are_identical(engine: Engine) -> None:
    # FAULT 44: greedy, whatever the checkpoint's generation config says.
    engine.model.generation_config.do_sample = True
    engine.model.generation_config.temperature = 5.0
    assert engine.generate(ids(40), 20) == engine.generate(ids(40), 20)


def test_nan_is_an_error_and_not_a_token(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_head", lambda hidden: torch.full((1, 1, 500), float("nan")))
    with pytest.raises(ArithmeticError, match="NaN"):
        engine.generate(ids(8), 3)


def test_the_model_is_left_as_it_was(llama: Any, encoder: Encoder) -> None:
    before = full_nll(llama, ids(30))
    engine = Engine(llama, encoder, chunk=16)
    engine.nll(ids(64))
    with pytest.raises(IndexError):
        engine.nll([10**6, 1])
    assert "forward" not in llama.base_model.__dict__
    np.testing.assert_array_equal(full_nll(llama, ids(30)), before)


def test_44_a_stop_string_that_is_a_special_token_ends_an_answer(llama: Any) -> None:
    """An end-of-turn marker is no text, so looking for it in the text finds nothing."""
    prompt, words = ids(40), tokenizer("bpe")
    _, whole = Engine(llama, Encoder(words)).generate(prompt, 8)
    mark = next(token for token in whole if whole.index(token) > 0)
    name = words.convert_ids_to_tokens(mark)
    words.add_special_tokens({"additional_special_tokens": [name]})
    text, cut = Engine(llama, Encoder(words)).generate(prompt, 8, [name])
    assert cut == whole[: whole.index(mark)]
    assert text == words.decode(cut)
