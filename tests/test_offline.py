"""--offline asks no other machine, for the data of tasks too; and nobody's code waits for the network without end."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes import save_tiny
from ropebench.errors import UsageError
from ropebench.plan import make_plan
from ropebench.registry import Registry
from ropebench.ruler import data as ruler_data
from ropebench.sweep import Sweep

FETCHED = ["ruler/qa_1", "ruler/qa_2", "infinitebench/passkey"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the hub's client is asked for; it has nothing."""
    import huggingface_hub

    calls: list[dict[str, Any]] = []

    def nothing(repo: str, **how: Any) -> str:
        calls.append(how)
        raise FileNotFoundError(repo)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", nothing)
    ruler_data._fetched.cache_clear()
    return calls


@pytest.mark.parametrize("name", FETCHED)
def test_data_that_are_not_here_are_an_error_that_names_the_folder(name: str, asked: list[dict[str, Any]]) -> None:
    task = Registry.load().build("task", name)[0]
    with pytest.raises(UsageError, match=f"is not on this machine, and --offline .* write {name}:data=FOLDER"):
        task.on_this_machine().resolved([1024])
    with pytest.raises(UsageError, match="cannot be read from the hub"):
        task.resolved([1024])
    assert [call["local_files_only"] for call in asked] == [True, False]


def test_a_sweep_hands_it_to_its_tasks(tmp_path: Path, asked: list[dict[str, Any]]) -> None:
    model = str(save_tiny(tmp_path / "tiny"))
    with pytest.raises(UsageError, match="--offline"):
        make_plan(Sweep(model=model, tasks=("ruler/qa_1",), lengths=(1024,), offline=True))
    assert asked[0]["local_files_only"] is True


@pytest.mark.parametrize("name", FETCHED)
def test_where_data_come_from_is_no_part_of_a_cell(name: str) -> None:
    task = Registry.load().build("task", name)[0]
    assert {"data", "offline"} & task.params.keys() == set()
    assert task.on_this_machine().params == task.params
    other = Registry.load().build("task", "kv")[0]
    assert other.on_this_machine() is other


# lm-eval's task files fetch what they like


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that takes a connection and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def task_that_asks(where: Path, port: int) -> Path:
    """A YAML folder whose data come from an address, with no time limit."""
    where.mkdir()
    (where / "far.py").write_text(
        f"import urllib.request\n\n\ndef far(**_):\n    urllib.request.urlopen('http://localhost:{port}/')\n"
    )
    config = {"task": "far", "test_split": "test", "doc_to_text": "{{q}}", "doc_to_target": "{{a}}"}
    lines = [f"{key}: {json.dumps(value)}\n" for key, value in config.items()]
    (where / "far.yaml").write_text("".join(lines) + "custom_dataset: !function far.far\n")
    return where


@pytest.mark.parametrize("offline, said", [(False, "imed out"), (True, "--offline: no other machine is asked")])
def test_a_task_file_that_waits_for_the_network_is_an_error_in_seconds(
    tmp_path: Path, silent: int, monkeypatch: pytest.MonkeyPatch, offline: bool, said: str
) -> None:
    """lm-eval's RULER fetches a sentence splitter while it is imported, which hung behind a firewall."""
    pytest.importorskip("lm_eval")
    from ropebench.lm_harness import network

    monkeypatch.setattr(network, "PATIENCE", 0.5)
    registry = Registry.load()
    (word,) = registry.expanded("task", f"lm_eval:{task_that_asks(tmp_path / 'asks', silent)}")
    task = registry.build("task", word)[0]
    before, began = socket.getdefaulttimeout(), time.monotonic()
    with pytest.raises(UsageError, match=said):
        (task.on_this_machine() if offline else task).resolved([256])
    assert time.monotonic() - began < 10
    assert socket.getdefaulttimeout() == before
    assert socket.getaddrinfo.__module__ == "socket"  # put back
