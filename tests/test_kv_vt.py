"""Key-value retrieval and short variable tracking: one right answer, at the depth that is recorded, found by a reader
of the prompt that knows nothing of the generator.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from ropebench.errors import UsageError
from ropebench.prompt import Encoder
from ropebench.registry import Registry
from ropebench.task import Output


@cache
def encoder() -> Encoder:
    return Encoder(AutoTokenizer.from_pretrained(Path(__file__).with_name("data") / "tokenizers" / "bpe-bos"))


def task(name: str, **parameters: Any) -> Any:
    return Registry.load().entry("task", name).cls(**parameters)


def prompts(one: Any, number: int, length: int = 1024, seed: int = 0) -> list[tuple[Any, str]]:
    examples = islice(one.examples(length, encoder(), seed), number)
    return [(example, encoder().decode(example.ids)) for example in examples]


def test_kv_asks_for_a_key_that_stands_once_where_the_depth_says() -> None:
    for example, text in prompts(task("kv"), 20):
        lines = re.findall(r"^([\w'-]+): (\d{5})$", text, re.MULTILINE)
        keys, values = [key for key, _ in lines], [value for _, value in lines]
        assert len(keys) > 30
        assert len(set(keys)) == len(keys)
        asked = text.rpartition("\n")[2].removesuffix(":")
        assert f"What is the value of {asked}?" in text
        assert example.targets == (values[keys.index(asked)],)
        assert example.meta["depth"] == pytest.approx(keys.index(asked) / (len(keys) - 1), abs=0.05)


def test_kv_depths_cover_the_whole_range() -> None:
    depths = sorted(example.meta["depth"] for example, _ in prompts(task("kv"), 32, 512))
    assert all(b - a < 0.12 for a, b in zip([0.0, *depths], [*depths, 1.0], strict=True))


@pytest.mark.parametrize("hops, chains", [(1, 4), (2, 3), (4, 1)])
def test_vt_names_lead_to_the_target_and_to_no_other_value(hops: int, chains: int) -> None:
    for example, text in prompts(task("vt", hops=hops, chains=chains), 20):
        given = dict(re.findall(r"^VAR ([A-Z]{3}) = (.+)$", text, re.MULTILINE))
        assert len(given) == chains * (hops + 1)
        assert len({value for value in given.values() if value.isdigit()}) == chains
        name = re.findall(r"VAR ([A-Z]{3}) =$", text)[0]
        assert f"What is the value of VAR {name}?" in text
        places = [text.index(f"VAR {name} = ")]
        for _ in range(hops):
            name = given[name].removeprefix("VAR ")
            places.append(text.index(f"VAR {name} = "))
        assert example.targets == (given[name],)
        assert places == sorted(places, reverse=True)  # what is referred to stands before
        assert example.meta["depths"] == sorted(example.meta["depths"])


def test_vt_is_read_from_the_first_number_whether_steps_are_written_or_not() -> None:
    one = task("vt")
    ((example, _),) = prompts(one, 1)
    value = example.targets[0]
    for text in (f" {value}", f" VAR ABC = {value}\nVAR DEF = 11111"):
        assert one.score(example, Output(text)) == {"accuracy": 1.0}
    for text in ("", f" {value}0", f" 11111 {value}", " VAR ABC"):
        assert one.score(example, Output(text)) == {"accuracy": 0.0}
    assert one.primary.chance == 0.25
    assert task("vt", chains=8).primary.chance == 0.125


@pytest.mark.parametrize("parameters", [{"hops": 0}, {"hops": 5}, {"chains": 0}, {"chains": 9}])
def test_vt_refuses_what_it_cannot_lay_out(parameters: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="must be from 1 to"):
        task("vt", **parameters)
