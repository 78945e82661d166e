"""One number seeds everything: the same command gives the same records, whatever the process did before or is set to,
and no global random state is read or changed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fakes import save_tiny, tokenizer
from ropebench import cli
from ropebench.corpus import Corpus, Document
from ropebench.errors import UsageError
from ropebench.prompt import Encoder
from ropebench.record import digest
from ropebench.registry import Registry
from ropebench.store import read, samples

Json = dict[str, Any]
WORDS = "the a module of class name value object returns is sets with for when list function type each".split()


def prose(seed: int) -> str:
    rng = random.Random(seed)
    return "".join(" ".join(rng.choices(WORDS, k=rng.randint(4, 12))).capitalize() + ". " for _ in range(1200))


def states() -> list[str]:
    return [str(random.getstate()), str(np.random.get_state()), digest(torch.get_rng_state().tolist())]


def set_states(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def made() -> Json:
    """A digest of a sample of every built-in task that needs no download."""
    corpus = Corpus("prose", "invented", lambda: iter([Document(f"doc-{i}", prose(i)) for i in range(3)]))
    encoder, found = Encoder(tokenizer("bpe-bos")), {}
    for entry in Registry.load().of("task"):
        for length in (512, 2048, 8192):  # some hold worked examples, and need room
            try:
                task = entry.cls().resolved([length])
                stream = task.examples(length, encoder, 0, corpus if task.needs_corpus else None)
                found[entry.name] = digest(repr(next(islice(stream, 1, None))))
                break
            except UsageError as error:
                if "from the hub" in str(error):
                    break
    return found


def test_samples_depend_on_no_global_state_and_change_none() -> None:
    set_states(1)
    before, here = states(), made()
    assert states() == before
    assert len(here) > 20
    env = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    code = "import json, test_determinism as t; t.set_states(2); print(json.dumps(t.made()))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == here


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny-llama", "bpe-bos")


def run(
    model: Path, results: Path, tasks: str = "kv,arithmetic/addition", lengths: str = "256,512", **more: str
) -> None:
    words = {
        "--model": str(model), "--method": "yarn,dynamic_ntk", "--tasks": tasks, "--lengths": lengths,
        "--target": "512", "--device": "cpu", "--dtype": "float32", "--n": "3", "--results": str(results), **more,
    }  # fmt: skip
    assert cli.main(["run", *(word for pair in words.items() for word in pair)]) == 0


def bare(folder: Path) -> tuple[list[Json], list[Json]]:
    """Records and rows of a folder without time, cost, ids of lines, and the command."""
    own = ("record_id", "run_id", "series", "created", "cost", "provenance")
    records = [{k: v for k, v in one.items() if k not in own} for one in read(folder)]
    return sorted(records, key=lambda one: str(one["cell_id"])), [
        {k: v for k, v in row.items() if k not in own} for row in samples(folder)
    ]


@pytest.fixture(scope="module")
def one(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a run that found the states as set_states(3) leaves them."""
    folder = tmp_path_factory.mktemp("runs") / "one"
    set_states(3)
    before = states()
    run(model, folder)
    assert states() == before
    return folder


def test_the_same_command_gives_the_same_records(one: Path, model: Path, tmp_path: Path) -> None:
    set_states(4)
    run(model, tmp_path / "two")
    assert bare(one) == bare(tmp_path / "two")
    assert len(read(one)) == 12


def test_the_order_of_cells_changes_no_score(one: Path, model: Path, tmp_path: Path) -> None:
    run(model, tmp_path / "two", "arithmetic/addition,kv", "512,256", **{"--method": "dynamic_ntk,yarn"})
    assert bare(one) == bare(tmp_path / "two")


def test_another_seed_gives_other_samples(model: Path, tmp_path: Path) -> None:
    run(model, tmp_path / "one", "kv", "256")
    run(model, tmp_path / "two", "kv", "256", **{"--seed": "1"})
    hashes = [{row["prompt_sha256"] for row in samples(tmp_path / name)} for name in ("one", "two")]
    assert len(hashes[0]) == 3
    assert not hashes[0] & hashes[1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_real_model_killed_at_random_moments_ends_in_the_same_scores(model: Path, tmp_path: Path) -> None:
    words = [
        "run", "--model", str(model), "--method", "yarn", "--tasks", "vt,arithmetic/addition", "--lengths", "256,512",
        "--target", "512", "--device", "cpu", "--dtype", "float32", "--n", "40", "--results",
    ]  # fmt: skip
    assert cli.main([*words, str(tmp_path / "whole")]) == 0
    rng, killed = random.Random(5), 0
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(6):
        before = len(samples(tmp_path / "cut"))
        process = subprocess.Popen([sys.executable, "-m", "ropebench.cli", *words, str(tmp_path / "cut")], env=env)
        deadline = time.monotonic() + 120
        while process.poll() is None and len(samples(tmp_path / "cut")) == before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.5))
        killed += process.poll() is None
        process.kill()
        process.wait(timeout=60)
    assert killed > 2
    assert cli.main([*words, str(tmp_path / "cut")]) == 0
    assert not (tmp_path / "cut" / ".claims").exists()
    records, rows = bare(tmp_path / "cut")
    assert len(read(tmp_path / "cut")) == len(records) == 8
    # Where a run is cut between two lengths that share a pass, the shorter is then run alone: equal but for rounding.
    for one, other in zip(rows, bare(tmp_path / "whole")[1], strict=True):
        assert one.pop("scores") == pytest.approx(other.pop("scores"), rel=1e-5)
        assert [one[key] for key in ("cell_id", "index", "prompt_sha256", "output")] == [
            other[key] for key in ("cell_id", "index", "prompt_sha256", "output")
        ]
