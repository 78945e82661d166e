"""The bundled model's training: the same seed gives the same weights, wherever a run was cut off, and a run's folder
says what it belongs to.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ropebench.cli import main
from ropebench.errors import UsageError
from ropebench.geometry import geometry_of
from ropebench.lens.tiny import train as trainer
from ropebench.lens.tiny.prose import Prose
from ropebench.lens.tiny.recipe import RECIPE, Recipe, Shape, Stage
from tiny_samples import TEXT, WORDS

SHAPE = Shape(vocabulary=600, hidden=32, layers=1, heads=2, head_dim=16, inner=32, window=128)
SMALL = Recipe(
    steps=12,
    shape=SHAPE,
    stages=(Stage(64, 3, 4, {"prose": 1, "drills": 1}), Stage(128, 2, None, {"prose": 1, "kv": 1, "drills": 1})),
    warmup=2,
)


@pytest.fixture(autouse=True)
def few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "TASK_TEXTS", 20)


def small(folder: Path, recipe: Recipe = SMALL, resume: bool = False, **how: Any) -> trainer.Run:
    return trainer.train(recipe, lambda: Prose(TEXT, "", "test"), folder, resume, lambda _: None, **how)


def weights(run: trainer.Run) -> np.ndarray[Any, Any]:
    return np.concatenate([parameter.detach().numpy().ravel() for parameter in run.parameters.values()])


def bits(run: trainer.Run) -> str:
    """A hash: pytest would compare two texts of this size for many minutes."""
    return hashlib.sha256(weights(run).tobytes()).hexdigest()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, trainer.Run]:
    """A run without a break."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "LOG_EVERY", 2)
        patch.setattr(trainer, "TASK_TEXTS", 20)
        return folder, small(folder)


@pytest.mark.parametrize("cut", [2, 4, 9])
def test_a_resumed_run_equals_an_uninterrupted_one(
    whole: tuple[Path, trainer.Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    monkeypatch.setattr(trainer, "LOG_EVERY", 2)
    small(tmp_path, until=cut)
    with (tmp_path / "log.jsonl").open("a", encoding="utf-8") as log:  # steps that were done, but not saved
        log.write(json.dumps({"step": cut + 2}) + "\n")
    torch.manual_seed(1234)
    assert bits(small(tmp_path, resume=True)) == bits(whole[1])
    kept = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in kept] == [n for n in (2, 4, 6, 8, 10, 12) if n <= cut - cut % 2 or n > cut]
    lines = (whole[0] / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert kept[-1] == json.loads(lines[-1])


def test_another_seed_gives_other_weights(whole: tuple[Path, trainer.Run], tmp_path: Path) -> None:
    assert bits(small(tmp_path, replace(SMALL, seed=1))) != bits(whole[1])


def test_a_run_can_be_made_longer_before_its_decay(tmp_path: Path) -> None:
    longer = replace(SMALL, steps=20)
    small(tmp_path / "a", until=5)
    small(tmp_path / "b", longer, until=9)
    extended = small(tmp_path / "a", longer, resume=True, until=9)
    assert bits(extended) == bits(small(tmp_path / "b", longer, resume=True, until=9))
    small(tmp_path / "a", longer, resume=True, until=13)
    with pytest.raises(UsageError, match="--steps can no longer be changed to 30"):
        small(tmp_path / "a", replace(SMALL, steps=30), resume=True)


def test_the_rate_before_the_decay_does_not_depend_on_the_number_of_steps() -> None:
    rates = [[replace(RECIPE, steps=steps).rate_at(step) for step in range(600)] for steps in (1000, 5000)]
    assert rates[0] == rates[1]
    assert rates[0][0] == pytest.approx(RECIPE.rate / RECIPE.warmup)
    assert max(rates[0]) == RECIPE.rate
    ends = replace(RECIPE, steps=1000)
    falling = [ends.rate_at(step) for step in range(600, 1000)]
    assert falling == sorted(falling, reverse=True)
    assert falling[-1] == pytest.approx(RECIPE.floor * RECIPE.rate, rel=0.01)


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no checkpoint"):
        small(tmp_path, resume=True)
    small(tmp_path, until=2)
    with pytest.raises(UsageError, match="holds a run already"):
        small(tmp_path)
    with pytest.raises(UsageError, match="another recipe"):
        small(tmp_path, replace(SMALL, rate=1e-4), resume=True)
    with pytest.raises(UsageError, match="another natural text, tokenizer"):
        trainer.train(SMALL, lambda: Prose(TEXT[:9000], "", "x"), tmp_path, True, lambda _: None)


def test_the_model_learns(tmp_path: Path) -> None:
    """The words of the text are drawn at random: nobody can beat their entropy, a model that sees the next id would."""
    small(tmp_path, replace(SMALL, steps=75, rate=1e-2, stages=(Stage(64, 8, None, {"prose": 1}),)))
    lines = (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()
    entropy = np.log(len(WORDS))
    assert 0.9 * entropy < json.loads(lines[-1])["prose"] < 1.15 * entropy


def test_the_finished_model_is_read_by_transformers(whole: tuple[Path, trainer.Run]) -> None:
    model = AutoModelForCausalLM.from_pretrained(whole[0] / "model", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(whole[0] / "model")
    assert len(tokenizer) == model.config.vocab_size == SHAPE.vocabulary
    trained = weights(whole[1])
    stored = np.concatenate([parameter.detach().numpy().ravel() for parameter in model.parameters()])
    assert np.abs(trained - stored).max() <= 2**-8 * np.abs(trained).max()  # bfloat16 has eight bits


def test_the_bundled_shape_is_what_was_promised() -> None:
    config = trainer.config_of(RECIPE.shape)
    geometry = geometry_of(config)
    assert (geometry.rotary_dim, geometry.theta, geometry.trained_length) == (64, 10_000.0, 512)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert 2e6 <= sum(parameter.numel() for parameter in model.parameters()) <= 6e6
    assert max(stage.width for stage in RECIPE.stages) == RECIPE.shape.window


@pytest.mark.parametrize("words, said", [(["--resume"], "holds no checkpoint"), (["--steps", "0"], "at least 1")])
def test_the_command_says_what_is_wrong(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lens", "train", "tiny", "--out", str(tmp_path), *words]) == 2
    assert said in capsys.readouterr().err


def test_rows_are_numbered_through_the_stages() -> None:
    places = [SMALL.place(step) for step in range(8)]
    assert [first for _, first in places] == [0, 3, 6, 9, 12, 14, 16, 18]
    assert [stage.width for stage, _ in places] == [64] * 4 + [128] * 4
