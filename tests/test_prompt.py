"""From text to ids: one BOS or none, by one rule, with and without a chat template; and filling to an exact count."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import Letters, tokenizer
from ropebench.errors import UsageError
from ropebench.prompt import BOS_RULES, Encoder, fill

TEXT = "the value of the name is a list"

# Llama's way: the template writes the BOS itself. SmolLM2's: the turn marker is the BOS token. Bare: no BOS at all.
LLAMA = "{{ bos_token }}{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}"
MARKER = (
    "{% for m in messages %}{{ bos_token }}{{ m['role'] }}\n{{ m['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token }}assistant\n{% endif %}"
)
BARE = "{% for m in messages %}user: {{ m['content'] }}\n{% endfor %}assistant:"
TWICE = "{{ bos_token }}{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"


def with_template(name: str, template: str) -> Any:
    words = tokenizer(name)
    words.chat_template = template
    return words


@pytest.mark.parametrize("name, bos, expected", [
    ("bpe", "auto", False), ("bpe", "always", True), ("bpe", "never", False),
    ("bpe-bos", "auto", True), ("bpe-bos", "always", True), ("bpe-bos", "never", False),
    ("word", "auto", False), ("word", "never", False), ("word-bos", "auto", True),
])  # fmt: skip
def test_bos_by_rule(name: str, bos: str, expected: bool) -> None:
    # FAULT 24: exactly one BOS, or none; the text's own ids are all there.
    encoder = Encoder(tokenizer(name), bos)
    assert encoder.adds_bos is expected
    plain = encoder.text(TEXT)
    head = [encoder.bos_id] if expected else []
    assert list(encoder.prompt(TEXT)) == head + plain
    assert list(encoder.document(plain)) == head + plain


def test_a_text_of_ten_tokens_has_ten_scored() -> None:
    # FAULT 24: BOS tokenizer, text of 10 tokens: the input begins with one BOS, 10 tokens scored, not 11.
    encoder = Encoder(Letters(adds_bos=True))
    fed = encoder.document(encoder.text("ten tokens"))
    assert fed.count(encoder.bos_id) == 1
    assert fed[0] == encoder.bos_id
    assert len(fed) - 1 == 10  # every id but the first is predicted


def test_a_documents_length_counts_the_bos() -> None:
    encoder = Encoder(Letters(adds_bos=True))
    assert len(encoder.document(range(100, 200), 64)) == 64
    assert encoder.document(range(100, 200), 64)[1:] == tuple(range(100, 163))
    assert Encoder(Letters()).document(range(100, 200), 64) == tuple(range(100, 164))


def test_always_needs_a_bos_token() -> None:
    with pytest.raises(UsageError, match="no BOS token; use --bos auto"):
        Encoder(tokenizer("word"), "always")


def test_a_chat_needs_a_template() -> None:
    with pytest.raises(UsageError, match="no chat template; use --chat-template off"):
        Encoder(tokenizer("word"), chat=True)


def test_an_unknown_rule_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'always'"):
        Encoder(Letters(), "allways")


@pytest.mark.parametrize("name", ["bpe", "bpe-bos"])
@pytest.mark.parametrize("template", [LLAMA, TWICE], ids=["once", "twice"])
@pytest.mark.parametrize("bos", ["auto", "always"])
def test_a_template_that_holds_the_bos_gives_one_at_index_0(name: str, template: str, bos: str) -> None:
    # FAULT 35: chat template and a post-processor that adds BOS whatever `add_bos_token` reads.
    encoder = Encoder(with_template(name, template), bos, chat=True)
    fed = encoder.prompt(TEXT, " the")
    assert fed[0] == encoder.bos_id
    assert fed.count(encoder.bos_id) == 1


def test_never_takes_the_templates_bos_away() -> None:
    encoder = Encoder(with_template("bpe-bos", LLAMA), "never", chat=True)
    assert encoder.bos_id not in encoder.prompt(TEXT)


@pytest.mark.parametrize("name, bos, expected", [
    ("bpe", "auto", 0), ("bpe", "always", 1), ("bpe-bos", "auto", 1), ("bpe-bos", "never", 0),
])  # fmt: skip
def test_a_template_without_bos_follows_the_rule(name: str, bos: str, expected: int) -> None:
    encoder = Encoder(with_template(name, BARE), bos, chat=True)
    fed = encoder.prompt(TEXT)
    assert fed.count(encoder.bos_id) == expected
    assert (fed[0] == encoder.bos_id) == bool(expected)


@pytest.mark.parametrize("name", ["bpe", "bpe-bos"])
@pytest.mark.parametrize("bos", BOS_RULES)
def test_a_turn_marker_that_is_the_bos_token_stays_as_the_template_has_it(name: str, bos: str) -> None:
    words = with_template(name, MARKER)
    encoder = Encoder(words, bos, chat=True)
    turn = [{"role": "user", "content": TEXT}]
    rendered = words.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
    assert list(encoder.prompt(TEXT)) == words(rendered, add_special_tokens=False)["input_ids"]
    assert encoder.prompt(TEXT).count(encoder.bos_id) == 2


def test_the_answer_prefix_follows_the_assistants_header() -> None:
    encoder = Encoder(with_template("bpe", MARKER), chat=True)
    text = encoder.tokenizer.decode(list(encoder.prompt(TEXT, " The answer is")))
    assert text.endswith("assistant\nThe answer is")
    assert encoder.decode(Encoder(tokenizer("bpe")).prompt(TEXT, " The answer is")) == TEXT + " The answer is"


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("name", ["bpe", "bpe-bos"])
def test_text_that_reads_like_a_special_token_is_text(name: str, chat: bool) -> None:
    # FAULTS 24 and 35: one BOS at index 0, also where a document holds the letters <s>.
    encoder = Encoder(with_template(name, LLAMA), "always", chat)
    fed = encoder.prompt("the <s>struck out</s> value")
    assert fed[0] == encoder.bos_id
    assert fed.count(encoder.bos_id) == 1
    assert encoder.tokenizer.eos_token_id not in fed
    assert "<s>struck out</s>" in encoder.tokenizer.decode(list(fed))


def test_decoding_leaves_spaces_alone_and_special_tokens_out() -> None:
    encoder = Encoder(tokenizer("bpe-bos"))
    assert encoder.decode(encoder.prompt("a , b . it 's")) == "a , b . it 's"


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.integers(-3, 200), st.integers(-5, 100), st.data())
def test_fill_finds_the_most_units_that_fit(sizes: list[int], budget: int, guess: int, data: st.DataObject) -> None:
    most = data.draw(st.integers(0, len(sizes)))
    tries = []

    def build(units: int) -> list[int]:
        tries.append(units)
        assert 0 <= units <= most
        return [0] * (3 + sum(sizes[:units]))

    fitting = [units for units in range(most + 1) if 3 + sum(sizes[:units]) <= budget]
    assert fill(build, budget, guess, most) == (max(fitting) if fitting else -1)
    assert len(tries) <= 40  # bisection, not a walk


@settings(deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 300), st.integers(1, 200))
def test_fill_never_exceeds_the_budget_where_counts_are_not_monotone(seed: int, budget: int, guess: int) -> None:
    # Merges can make a longer text one token shorter.
    def build(units: int) -> list[int]:
        return [0] * (units + (seed >> (units % 31)) % 3)

    found = fill(build, budget, guess, 200)
    assert found == -1 or len(build(found)) <= budget
    if found == -1:
        assert len(build(0)) > budget
