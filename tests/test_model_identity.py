"""What a model's cells are called by: all files that decide its answers, or the exact commit on the hub."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from fakes import save_tiny, tiny_config
from ropebench.aliases import aliases, find, is_commit
from ropebench.errors import UsageError
from ropebench.model import card
from ropebench.plan import Sweep, make_plan

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "tiny-llama"))


def revision(folder: Path) -> str:
    return card(find(str(folder))).revision


def edit(name: str, **changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / name
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return change


def add(name: str, text: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)

    return change


CHANGES: dict[str, Callable[[Path], None]] = {
    "another base": edit("config.json", rope_parameters={"rope_type": "default", "rope_theta": 5e5}),
    "another norm": edit("config.json", rms_norm_eps=1e-3),
    "another tokenizer": edit("tokenizer.json", truncation={"max_length": 9}),
    "another way to add a BOS": edit("tokenizer_config.json", add_bos_token=True),
    "a template in a file": add("chat_template.jinja", "{{ messages[0]['content'] }}"),
    "one of several templates": add("additional_chat_templates/tools.jinja", "{{ messages[0]['content'] }}"),
    "another end of text": edit("generation_config.json", eos_token_id=[1, 7]),
    "a vocabulary": add("vocab.txt", "a\nb\n"),
    "code of its own": add("modeling_mine.py", "x = 1\n"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_file_that_decides_an_answer_makes_another_model(folder: Path, change: Callable[[Path], None]) -> None:
    before = revision(folder)
    change(folder)
    assert revision(folder) != before


@pytest.mark.parametrize("name", ["README.md", "training.png", ".gitattributes", ".cache.json", "optimizer.pt"])
def test_other_files_make_no_difference(folder: Path, name: str) -> None:
    before = revision(folder)
    (folder / name).write_text("{}")
    assert revision(folder) == before


def test_the_same_files_elsewhere_and_later_are_the_same_model(folder: Path, original: Path) -> None:
    for file in folder.iterdir():
        os.utime(file, (1, 1))
    assert revision(folder) == revision(original)


def test_moving_text_from_one_file_to_another_is_seen(folder: Path) -> None:
    add("a.txt", "one")(folder)
    add("b.txt", "two")(folder)
    first = revision(folder)
    add("a.txt", "two")(folder)
    add("b.txt", "one")(folder)
    assert revision(folder) != first


def sweep(model: str, **changes: Any) -> Sweep:
    fixed: dict[str, Any] = {
        "methods": ("yarn",), "tasks": ("niah",), "lengths": "512", "docs": "noise", "device": "cpu",
        "dtype": "float32",
    }  # fmt: skip
    return Sweep(model=model, **{**fixed, **changes})


def test_a_new_template_makes_new_cells(folder: Path) -> None:
    before = {one.id for one in make_plan(sweep(str(folder))).cells}
    CHANGES["a template in a file"](folder)
    assert before.isdisjoint({one.id for one in make_plan(sweep(str(folder))).cells})


# Revisions on the hub


def test_a_commit_is_forty_hex_digits() -> None:
    assert is_commit(COMMIT)
    assert not any(map(is_commit, ("main", "", COMMIT[:39], COMMIT + "0", COMMIT.upper(), "v1.0", "g" * 40)))


def test_every_alias_on_the_hub_names_a_commit() -> None:
    on_hub = [spec for spec in aliases().values() if spec.on_hub]
    assert len(on_hub) >= 11
    # No commit of these is known to us; a run says that `main` is a moving target.
    moving = ["yarn-llama2-7b-64k", "yarn-llama2-7b-128k"]
    assert [spec.id for spec in on_hub if not is_commit(spec.revision)] == moving
    assert len({spec.revision for spec in on_hub}) == len(on_hub) - len(moving) + 1


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A hub whose every revision resolves to `commit` (None: the loader does not say)."""
    asked: dict[str, Any] = {"commit": COMMIT}

    def give(path: str, **how: Any) -> Any:
        asked.update(how)
        config = tiny_config("llama")
        config._commit_hash = asked["commit"]
        return config

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", give)
    return asked


def test_a_moving_revision_is_said_and_its_commit_is_in_the_cell(hub: dict[str, Any]) -> None:
    plan = make_plan(sweep("owner/name"))
    assert hub["revision"] == "main"
    (note,) = (note for note in plan.notes if "moving" in note)
    assert f"revision 'main' of owner/name is a moving target; resolved to {COMMIT}" in note
    assert f"--revision {COMMIT}" in note
    assert {one.identity["model"]["revision"] for one in plan.cells} == {COMMIT}
    before = {one.id for one in plan.cells}
    hub["commit"] = COMMIT[::-1]  # main has moved
    assert before.isdisjoint({one.id for one in make_plan(sweep("owner/name")).cells})


def test_a_commit_needs_no_note(hub: dict[str, Any]) -> None:
    assert not any("moving" in note for note in make_plan(sweep("owner/name", revision=COMMIT)).notes)
    assert not any("moving" in note for note in make_plan(sweep("olmo-1b")).notes)
    assert hub["revision"] == aliases()["olmo-1b"].revision


def test_a_revision_that_cannot_be_resolved_is_said(hub: dict[str, Any]) -> None:
    hub["commit"] = None
    notes = make_plan(sweep("owner/name", revision="v2")).notes
    assert any("revision 'v2' of owner/name is a moving target; and no commit could be found" in note for note in notes)


def test_a_folder_has_nothing_to_say_about_revisions(original: Path) -> None:
    assert not any("moving" in note for note in make_plan(sweep(str(original))).notes)


def test_a_folder_without_weights_is_still_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(UsageError, match=r"no \*\.safetensors weights"):
        revision(folder)
