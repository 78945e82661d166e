"""What every registered task promises, and how its parameters are read from words.

A task that enters by any door (a file in tasks/, an entry point) is picked up here from the registry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache, partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from transformers import AutoTokenizer

from ropebench.corpus import Corpus, Document
from ropebench.errors import UsageError
from ropebench.prompt import Encoder
from ropebench.registry import Registry
from ropebench.task import Example, Output, Task, parse_length, with_params

TOKENIZERS = Path(__file__).with_name("data") / "tokenizers"
WORDS = "the a of module class name value object returns is sets with for when list function type each one that".split()


@cache
def prose(seed: int, sentences: int) -> str:
    """Invented sentences, the same on every machine."""
    rng = Random(seed)
    lines = (" ".join(rng.choices(WORDS, k=rng.randint(4, 12))).capitalize() + ". " for _ in range(sentences))
    return "".join(lines)


CORPUS = Corpus("prose", "invented", lambda: iter([Document(f"doc-{i}", prose(i, 1200)) for i in range(3)]))


def variants() -> Iterator[Any]:
    """Every registered task with its defaults, and with each other value of a parameter that is a choice."""
    for entry in Registry.load().of("task"):
        yield pytest.param(entry.cls, id=entry.name)
        for name, kind in get_type_hints(entry.cls).items():
            if get_origin(kind) is Literal:
                for value in get_args(kind)[1:]:
                    yield pytest.param(partial(entry.cls, **{name: value}), id=f"{entry.name}-{value}")


@pytest.fixture(params=variants())
def task(request: pytest.FixtureRequest) -> Task:
    made: Task = request.param()
    return made


@cache
def encoder(name: str = "bpe-bos") -> Encoder:
    return Encoder(AutoTokenizer.from_pretrained(TOKENIZERS / name))


def stream(task: Task, length: int, encoder: Encoder, seed: int = 0) -> Iterator[Example]:
    return task.resolved([length]).examples(length, encoder, seed, CORPUS if task.needs_corpus else None)


@cache
def some(task: Task, name: str = "bpe-bos", length: int = 512) -> tuple[int, tuple[Example, ...]]:
    """A few samples, and their length: four times longer where that is not enough (prompts with worked examples)."""
    try:
        return length, tuple(islice(stream(task, length, encoder(name)), 3))
    except UsageError as error:
        if "from the hub" in str(error):
            pytest.skip("its data are fetched from the hub")
        if length >= 8192:
            raise
        return some(task, name, 4 * length)


def test_built_in_tasks_are_registered() -> None:
    assert {"proofpile", "niah"} <= {entry.name for entry in Registry.load().of("task")}


def test_metadata_is_complete(task: Task) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*(/[a-z0-9_]+)?", task.name)
    assert task.version >= 1
    assert task.summary
    assert task.source
    assert task.scorer_name()
    assert task.minimum_length >= 0
    assert task.default_n >= 1
    assert task.metrics
    assert len({metric.name for metric in task.metrics}) == len(task.metrics)
    assert task.primary is task.metrics[0]
    assert bool(task.docs()) <= task.needs_corpus


def test_metrics_say_direction_range_and_chance(task: Task) -> None:
    names = {metric.name for metric in task.metrics}
    for metric in task.metrics:
        assert metric.direction in ("higher", "lower")
        if metric.low is not None and metric.high is not None:
            assert metric.low < metric.high
            assert metric.chance is None or metric.low <= metric.chance <= metric.high
        if metric.high == 1.0:
            assert metric.chance is not None, f"{metric.name}: what does guessing score?"
        if metric.derived is not None:
            function, of = metric.derived
            assert function == "exp"
            assert of in names - {metric.name}


def test_params_are_json_and_make_an_equal_task(task: Task) -> None:
    assert type(task)(**json.loads(json.dumps(task.params))) == task
    values = {name: getattr(task, name) for name in task.params}
    words = {n: "/".join(map(str, v)) if isinstance(v, tuple) else str(v) for n, v in values.items()}
    assert with_params("task", type(task), words) == task


@pytest.mark.parametrize("name, length", [("bpe-bos", 512), ("word", 512), ("word", 2048)])
def test_samples_fill_the_length_and_never_pass_it(task: Task, name: str, length: int) -> None:
    length, examples = some(task, name, length)
    for example in examples:
        assert example.skip is None
        # With 512 ids of a few letters each, one line of a haystack is more than 5 %.
        assert (0.95 if length >= 2048 else 0.9) * length <= example.tokens <= length
        assert bool(example.ids) == bool(example.max_new_tokens)
        for window in example.windows:
            assert 1 <= window.first_scored < len(window.ids) <= length
        assert json.loads(json.dumps(dict(example.meta), allow_nan=False)) == example.meta


def test_sample_i_depends_on_seed_and_i_alone(task: Task) -> None:
    length, three = some(task)
    assert tuple(islice(stream(task, length, encoder()), 2)) == three[:2]
    assert len({(example.ids, example.windows) for example in three}) == 3


@pytest.mark.parametrize("length", [64, 256, 300])
def test_a_short_length_works_or_is_refused_with_the_smallest_that_works(task: Task, length: int) -> None:
    try:
        example = next(stream(task, length, encoder()))
    except UsageError as error:
        message = str(error)
        if "from the hub" in message:
            pytest.skip("its data are fetched from the hub")
    else:
        assert example.tokens <= length
        return
    assert task.name in message
    assert str(length) in message
    smallest = int(re.findall(r"\d+", message)[-1])
    assert smallest > length
    assert all(example.tokens <= smallest for example in islice(stream(task, smallest, encoder()), 5))


def scores(task: Task, output: Callable[[Example], Output]) -> Iterator[tuple[Any, float]]:
    """Each metric with its value, for a few samples whose output is made from the example."""
    metrics = {metric.name: metric for metric in task.metrics}
    for example in some(task)[1]:
        for name, value in task.score(example, output(example)).items():
            assert metrics[name].derived is None, "a derived metric is computed by the cell, not by the task"
            yield metrics[name], value


def test_a_perfect_output_scores_best_and_an_empty_one_worst(task: Task) -> None:
    def with_nll(example: Example, text: str, nll: float) -> Output:
        return Output(text, (), tuple([nll] * (len(w.ids) - w.first_scored) for w in example.windows))

    for metric, value in scores(task, lambda example: with_nll(example, " ".join(example.targets), 0.0)):
        assert value == pytest.approx(metric.high if metric.direction == "higher" else metric.low)
    for metric, value in scores(task, lambda example: with_nll(example, "", 30.0)):
        if metric.direction == "higher":
            assert value == metric.low
        else:
            assert value > 0 if metric.high is None else value == metric.high


def test_scores_stay_in_range(task: Task) -> None:
    rng = Random(0)

    def some(example: Example) -> Output:
        nll = tuple([rng.random() * 9 for _ in range(len(w.ids) - w.first_scored)] for w in example.windows)
        return Output("The " + " ".join(t[: len(t) // 2] for t in example.targets), (), nll)

    for metric, value in scores(task, some):
        assert metric.low is None or value >= metric.low
        assert metric.high is None or value <= metric.high


# Parameters from words

PLUGIN = """
from dataclasses import dataclass
from typing import Literal, Optional
from ropebench import Task

@dataclass(frozen=True)
class Every(Task):
    name = "every"
    flag: bool = False
    size: int = 1
    share: float = 0.5
    most: int | None = None
    rate: Optional[float] = None
    kind: Literal["alpha", "beta"] = "alpha"
    base: Literal[2, 10] = 2
    word: str = "x"
    factors: tuple[float, ...] = ()
"""


@pytest.fixture(params=["", "from __future__ import annotations\n"], ids=["types", "annotations as text"])
def every(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Any]:
    file = tmp_path / "every.py"
    file.write_text(request.param + PLUGIN)
    registry = Registry.load([str(file)])
    return lambda words: registry.build("task", f"every:{words}")[0]


@pytest.mark.parametrize(
    "word, value",
    [
        ("flag=true", True), ("flag=Off", False), ("flag=1", True), ("size=2k", 2048), ("size=-3", -3), ("size=7", 7),
        ("share=1e-3", 0.001), ("share=2", 2.0), ("most=32K", 32768), ("most=none", None), ("rate=None", None),
        ("rate=0.25", 0.25), ("kind=beta", "beta"), ("base=10", 10), ("word=none", "none"),
        ("factors=1/2.5", (1.0, 2.5)),
    ],
)  # fmt: skip
def test_a_word_is_read_as_its_fields_type(every: Callable[[str], Any], word: str, value: Any) -> None:
    got = getattr(every(word), word.split("=")[0])
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    "word, says",
    [
        ("flag=maybe", "flag='maybe' is not true or false"),
        ("size=1.5", "size='1.5' is not a whole number"),
        ("size=k", "size='k' is not a whole number"),
        ("size=none", "size='none' is not a whole number"),
        ("most=x", "most='x' is not a whole number (or none)"),
        ("share=nan", "share='nan' is not a number"),
        ("share=inf", "share='inf' is not a number"),
        ("kind=betta", "did you mean 'beta'?; allowed: alpha, beta"),
        ("base=3", "allowed: 10, 2"),
        ("factors=1/x", "factors='1/x' is not numbers with / between them"),
        ("flga=1", "did you mean 'flag'?"),
    ],
)
def test_a_wrong_word_is_one_line_that_says_what_is_wanted(every: Callable[[str], Any], word: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        every(word)
    assert says in str(caught.value)
    assert "every" in str(caught.value)
    assert "\n" not in str(caught.value)


@dataclass(frozen=True)
class Required(Task):
    name = "required"
    subset: str
    table: dict[str, int]


def test_a_missing_parameter_and_a_type_without_a_word_are_said() -> None:
    with pytest.raises(UsageError, match="needs subset, table: write required:subset=VALUE"):
        with_params("task", Required, {})
    with pytest.raises(UsageError, match=r"table is of a type \(dict\[str, int\]\) that cannot be given as a word"):
        with_params("task", Required, {"subset": "a", "table": "b"})


def test_a_parameter_above_a_forgotten_decorator_is_said() -> None:
    class Forgotten(Task):
        name = "forgotten"
        size: int = 3

    with pytest.raises(UsageError, match=r"size is no parameter yet; write @dataclass\(frozen=True\)"):
        with_params("task", Forgotten, {})


def test_built_in_parameters_have_the_words_of_the_specification() -> None:
    registry = Registry.load()
    names = {entry.name: [f.name for f in fields(entry.cls)] for entry in registry.of("task")}
    assert names["proofpile"] == ["protocol", "stride", "min_doc_tokens"]
    assert names["niah"] == ["variant", "depths", "max_new_tokens"]
    assert registry.build("task", "proofpile:protocol=sliding:stride=128:min_doc_tokens=32k")[0].params == {
        "protocol": "sliding", "stride": 128, "min_doc_tokens": 32768
    }  # fmt: skip


@pytest.mark.parametrize("word, tokens", [("32768", 32768), ("32k", 32768), (" 1K ", 1024), ("-1k", -1024)])
def test_lengths_in_words(word: str, tokens: int) -> None:
    assert parse_length(word) == tokens


@pytest.mark.parametrize("word", ["", "k", "1.5k", "1m", "one"])
def test_words_that_are_no_length(word: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse_length(word)
