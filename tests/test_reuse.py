"""What is held from one pass to the next changes no answer: every fast path against the plain one."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from fakes import Coins, FakeEngine, cell, ids, tiny, tokenizer
from ropebench import attention
from ropebench.apply import applied
from ropebench.engine import Engine
from ropebench.geometry import geometry_of
from ropebench.passes import Passes, by_beginning
from ropebench.prefixes import Prefixes
from ropebench.prompt import Encoder
from ropebench.registry import Registry
from ropebench.task import Example, Window

METHODS = [entry.name for entry in Registry.load().of("method") if not entry.cls.length_dependent]
KINDS = ["llama", "qwen2", "qwen3", "phi", "phi3", "gpt_neox", "olmo2", "cohere", "granite", "stablelm", "qwen3_moe"]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(tokenizer("bpe"))


@pytest.fixture(scope="module")
def llama() -> Any:
    return tiny("llama")


def cache_name(model: Any) -> str:
    """What this transformers calls it."""
    return "cache" if "cache" in inspect.signature(model.base_model.forward).parameters else "past_key_values"


def needles(beginning: int, length: int = 200) -> list[int]:
    """A prompt that has its first `beginning` ids in common with every other one."""
    return ids(length)[:beginning] + ids(length, 1 + beginning)[beginning:]


def fresh(model: Any, encoder: Encoder, **how: Any) -> Engine:
    engine = Engine(model, encoder, **how)
    engine.end_ids = frozenset()
    return engine


class Fed:
    """How many rows each pass sends through the model's first MLP."""

    def __init__(self, model: Any) -> None:
        self.rows: list[int] = []
        first = next(module for name, module in model.named_modules() if name.endswith("layers.0.mlp"))
        self.hook = first.register_forward_hook(lambda _, given, __: self.rows.append(given[0].shape[-2]))

    def __enter__(self) -> list[int]:
        return self.rows

    def __exit__(self, *_: Any) -> None:
        self.hook.remove()


@pytest.mark.parametrize("kind", KINDS)
def test_attention_over_a_cache_is_that_of_the_whole(kind: str) -> None:
    model = tiny(kind)
    assert attention.sees_everything(model)
    # In the oldest supported transformers stablelm has an attention of its own: its passes are run whole.
    own = kind == "stablelm" and cache_name(model) == "past_key_values"
    assert attention.goes_on_from_a_cache(model, cache_name(model)) is not own


def test_the_proof_fails_where_the_merge_is_wrong(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(module: Any, query: Any, key: Any, value: Any, mask: Any, *more: Any, **named: Any) -> Any:
        new = query.shape[2]  # forgets what is in the cache
        return attention.sdpa_attention_forward(module, query, key[:, :, -new:], value[:, :, -new:], None, **named)

    monkeypatch.setitem(attention.AttentionInterface._global_mapping, attention.NAME, blind)
    assert not attention.goes_on_from_a_cache(llama, cache_name(llama))


@pytest.mark.parametrize("kind", ["mistral", "gemma2"])
def test_a_sliding_window_is_never_gone_on_from(kind: str, encoder: Encoder) -> None:
    model = tiny(kind, sliding_window=32, **({"attention": "eager"} if kind == "gemma2" else {}))
    assert not attention.sees_everything(model)
    engine = fresh(model, encoder)
    first, second = engine.generate(needles(150), 4), engine.generate(needles(100), 4)
    assert first == fresh(model, encoder).generate(needles(150), 4)
    assert second == fresh(model, encoder).generate(needles(100), 4)


@pytest.mark.parametrize("held, new", [(1, 2), (5, 64), (64, 5), (100, 100)])
def test_suffix_attention_is_masked_attention(held: int, new: int) -> None:
    torch.manual_seed(held)
    query = torch.randn(1, 6, new, 16)
    key, value = torch.randn(2, 1, 2, held + new, 16)
    module = torch.nn.Module()
    module.num_key_value_groups = 3  # type: ignore[assignment]
    module.is_causal = True  # type: ignore[assignment]
    ours, _ = attention.suffix_attention(module, query, key, value, None, scaling=0.3)
    mask = torch.ones(new, held + new, dtype=torch.bool).tril(held)
    wide = [part.repeat_interleave(3, dim=1) for part in (key, value)]
    plain = torch.nn.functional.scaled_dot_product_attention(query, *wide, attn_mask=mask, scale=0.3)
    torch.testing.assert_close(ours, plain.transpose(1, 2), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("what", [{"softcap": 5.0}, {"s_aux": torch.zeros(2)}, {"sliding_window": 8}])
def test_suffix_attention_refuses_what_it_would_leave_out(what: dict[str, Any]) -> None:
    parts = [torch.zeros(1, 2, rows, 4) for rows in (3, 9, 9)]
    with pytest.raises(ValueError, match=next(iter(what))):
        attention.suffix_attention(torch.nn.Module(), *parts, None, **what)


@pytest.mark.parametrize("name", METHODS)
def test_generation_goes_on_from_the_common_beginning(name: str, llama: Any, encoder: Encoder) -> None:
    method, _ = Registry.load().build("method", name)
    table = method.frequencies(geometry_of(llama.config), 4.0, 256)
    prompts = [needles(beginning) for beginning in (190, 120, 120, 60, 30)]
    with applied(llama, table):
        plain = [fresh(llama, encoder).generate(prompt, 8) for prompt in prompts]
        engine = fresh(llama, encoder)
        engine.generate(prompts[0], 1)
        assert engine._goes_on
        with Fed(llama) as rows:
            held = [engine.generate(prompt, 8) for prompt in prompts]
    assert held == plain
    prefills = [count for count in rows if count > 1]
    assert prefills == [80, 140, 170]  # 200 less what is in common; a prompt that was just there needs one row
    assert len({text for text, _ in held}) > 3  # a model that answers all alike would prove nothing


def test_likelihood_and_generation_on_one_sample_share_the_prompt(llama: Any, encoder: Encoder) -> None:
    prompt, answer = ids(200), [3, 4, 5]
    other = needles(150)
    engine = fresh(llama, encoder)
    with Fed(llama) as rows:
        nll = engine.nll([*prompt, *answer], keep=True)
        new = engine.generate(prompt, 2)
        again = engine.nll([*other, *answer], keep=True)
        last = engine.generate(other, 2)
    assert rows[0] == 203
    assert sum(rows) == 203 + 2 + (24 + 16 + 12) + (203 - 149) + 2
    plain = fresh(llama, encoder)
    np.testing.assert_allclose(nll, plain.nll([*prompt, *answer]), atol=1e-5)
    np.testing.assert_allclose(again, plain.nll([*other, *answer]), atol=1e-5)
    assert (new, last) == (plain.generate(prompt, 2, reuse=False), plain.generate(other, 2, reuse=False))


def test_what_generation_holds_has_no_likelihood_to_give(llama: Any, encoder: Encoder) -> None:
    engine = fresh(llama, encoder)
    engine.generate(needles(150), 3)
    np.testing.assert_allclose(engine.nll(needles(150)), fresh(llama, encoder).nll(needles(150)), atol=1e-5)


def test_without_reuse_nothing_is_held_or_used(llama: Any, encoder: Encoder) -> None:
    engine = fresh(llama, encoder)
    engine.generate(needles(190), 2)
    with Fed(llama) as rows:
        engine.generate(needles(190), 1, reuse=False)
        engine.nll(needles(190), keep=True, reuse=False)
        engine.generate(needles(190), 1, reuse=False)
    assert rows == [200, 200, 200]
    assert engine._held is None


def test_a_short_beginning_is_not_worth_another_path(llama: Any, encoder: Encoder) -> None:
    engine = fresh(llama, encoder)
    engine.generate(needles(20), 1)
    with Fed(llama) as rows:
        engine.generate(needles(19), 1)
    assert rows == [200]


@pytest.mark.parametrize("piece", [1, 7, 64, 199])
def test_a_prefill_in_pieces_is_the_whole_one(piece: int, llama: Any, encoder: Encoder) -> None:
    engine = fresh(llama, encoder, piece=piece)
    engine.piece = piece
    assert engine.generate(ids(200), 8) == fresh(llama, encoder).generate(ids(200), 8)
    nll = engine.nll(ids(200, 3), keep=True)
    np.testing.assert_allclose(nll, fresh(llama, encoder).nll(ids(200, 3)), atol=1e-5)


def test_pieces_bound_what_goes_through_at_once(llama: Any, encoder: Encoder) -> None:
    engine = fresh(llama, encoder, piece=64)
    with Fed(llama) as rows:
        engine.generate(ids(200), 1)
    assert [count for count in rows if count not in (24, 16, 12)] == [64, 64, 64, 8]


def test_the_model_is_as_it_was(llama: Any, encoder: Encoder) -> None:
    engine = fresh(llama, encoder)
    before = llama.config._attn_implementation
    engine.generate(needles(150), 2)
    engine.generate(needles(100), 2)
    assert llama.config._attn_implementation == before == "sdpa"


def pairs(*prompts: str) -> list[tuple[int, Example]]:
    return [(index, Example(tuple(map(ord, prompt)))) for index, prompt in enumerate(prompts)]


def test_prompts_that_begin_alike_stand_together() -> None:
    order = [index for index, _ in by_beginning(pairs("abx", "ca", "abcd", "cb", "abcx"))]
    assert order == [2, 4, 0, 1, 3]


def test_prompts_are_put_in_order_a_bounded_number_at_a_time() -> None:
    made: list[int] = []

    def stream() -> Iterator[tuple[int, Example]]:
        for index, example in pairs("bb", "ba", "ab", "aa", "cc"):
            made.append(index)
            yield index, example

    order = by_beginning(stream(), at_once=4)
    assert next(order)[0] == 1
    assert made == [0, 1, 2]
    assert [index for index, _ in order] == [0, 3, 2, 4]


def test_examples_without_a_prompt_keep_their_place() -> None:
    mixed = [*pairs("b", "a"), (2, Example()), (3, Example()), (4, Example((1,)))]
    assert [index for index, _ in by_beginning(mixed)] == [1, 0, 2, 3, 4]


def test_what_came_before_a_failure_is_still_run() -> None:
    def stream() -> Iterator[tuple[int, Example]]:
        yield from pairs("b", "a")
        raise ZeroDivisionError

    order = by_beginning(stream())
    assert [next(order)[0], next(order)[0]] == [1, 0]
    with pytest.raises(ZeroDivisionError):
        next(order)


def windows(*texts: str, answer: int = 0) -> Example:
    return Example(windows=tuple(Window(tuple(map(ord, text))) for text in texts), max_new_tokens=answer)


@pytest.mark.parametrize(
    ("example", "kept"),
    [
        (windows("a question: yes", "a question: no"), True),
        (windows("a sliding window", "dow that slides "), False),
        (windows("a document"), False),
        (windows("a sum and its answer", answer=4), True),
    ],
)
def test_a_cache_is_held_only_for_what_may_go_on_from_it(example: Example, kept: bool) -> None:
    asked: list[bool] = []

    class Noted(FakeEngine):
        def nll(self, ids: Any, keep: bool = False, reuse: bool = True) -> Any:
            asked.append(keep)
            return super().nll(ids)

    one = cell(Coins())
    Passes(one, Noted(), Prefixes(), lambda _: None).output(example)
    assert asked == [kept] * len(example.windows)
