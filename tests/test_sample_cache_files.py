"""The files of kept samples: only what is missing is made, damage is mended, and the folder does not grow for ever."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

import counted
import fakes
from counted import WORDS, Counted, Plain, Words, fresh, kept
from ropebench import cli, sample_cache
from ropebench.errors import UsageError
from ropebench.run import preflight, run_cells
from ropebench.sample_cache import kept_examples
from ropebench.store import Stored
from ropebench.task import Example

folder = counted.folder


# When it is made, and when not


def test_only_what_is_missing_is_made(folder: Path) -> None:
    for task in (Counted(), Plain()):
        wanted = fresh(task, 9)
        assert kept(task, 4) == kept(task, 2) + kept(task, 4)[2:] == wanted[:4]
        assert Counted.made == [0, 1, 2, 3]
        assert kept(task, 9) == wanted  # a larger n tops up the same file
        assert Counted.began == ([0, 4] if type(task) is Counted else [0, 0])
        Counted.made.clear()
        assert kept(task, 9) == wanted
        assert Counted.made == []
    assert len(list(folder.iterdir())) == 2


def test_the_end_of_a_stream_is_kept() -> None:
    task = Counted(ends=5)
    assert len(kept(task, 99)) == 5
    Counted.began.clear()
    assert len(kept(task, 99)) == 5
    assert Counted.began == []


def test_one_sample_far_in_the_stream_can_be_asked_for() -> None:
    task = Counted()
    far = next(kept_examples(task, 8, WORDS, 0, start=70))
    assert Counted.made == [70]
    assert kept(task, 71)[70] == far
    assert Counted.made == [70, *range(70)]


def test_what_costs_nothing_to_make_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_cache, "WORTH", 1e9)
    assert kept(Counted(), 600) == fresh(Counted(), 600)
    assert not folder.exists()


def test_what_has_become_worth_it_is_kept_from_the_first_sample_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(count(0, 0.1))  # every look at it is 0.1 s later, so a sample takes 0.1 s
    monkeypatch.setattr(sample_cache.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(sample_cache, "WORTH", 0.45)
    kept(Counted(), 4)
    kept(Counted(), 6)
    Counted.made.clear()
    kept(Counted(), 6)
    assert Counted.made == []


def test_errors_of_the_stream_pass_through_and_are_not_kept() -> None:
    class Short(Plain):
        def examples(self, length: int, encoder: Any, seed: int, corpus: Any = None) -> Iterator[Example]:  # type: ignore[override]
            yield from islice(Counted.examples(self, length, encoder, seed), 2)
            raise UsageError("too short")

    for _ in range(2):
        stream = kept_examples(Short(), 8, WORDS, 0)
        assert len(list(islice(stream, 2))) == 2
        with pytest.raises(UsageError, match="too short"):
            next(stream)


def test_a_run_reads_for_the_second_method_what_it_made_for_the_first(tmp_path: Path) -> None:
    cells = [fakes.cell(Counted(), length=8, seed=seed) for seed in (0, 0, 1)]
    loaded = fakes.loaded(Words())
    preflight(cells[:1], loaded.tokenizer)
    assert Counted.made == [0]
    writer = fakes.writer(tmp_path / "results")
    run_cells(cells, loaded, Stored(), writer, engine=fakes.FakeEngine())
    assert Counted.made == [0, 1, 2, 3, 0, 1, 2, 3]


# Files that are not as they were written


@pytest.mark.parametrize("how", ["torn", "flipped", "garbage", "empty", "binary", "swapped", "a folder"])
def test_a_damaged_file_costs_the_time_and_is_mended(how: str, folder: Path) -> None:
    wanted = fresh(Counted(), 6)
    kept(Counted(), 6)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    lines = [line for line in whole.split(b"\n") if line]
    middle = whole.index(lines[3]) + len(lines[3]) // 2
    if how == "a folder":
        file.unlink()
        file.mkdir()
    else:
        file.write_bytes(
            {
                "torn": whole[:middle],
                "flipped": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
                "garbage": b"not a cache\n3 !!\n4 e30=\n" + b"9" * 5000 + b" 1\n",
                "empty": b"",
                "binary": bytes(range(256)) * 9,
                "swapped": b"\n".join(reversed(lines)) + b"\n",
            }[how]
        )
    for _ in range(2):
        Counted.made.clear()
        assert kept(Counted(), 6) == wanted
    assert Counted.made == ([*range(6)] if how == "a folder" else [])


def test_a_line_that_is_still_being_written_is_read_when_it_is_whole(folder: Path) -> None:
    wanted = fresh(Counted(), 3)
    kept(Counted(), 3)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    reader = sample_cache._Kept(file)
    assert [reader.read(i) for i in range(2)] == wanted[:2]
    with pytest.raises(KeyError):
        reader.read(2)
    file.write_bytes(whole)
    assert reader.read(2) == wanted[2]


def test_a_damaged_line_is_written_again_and_found(folder: Path) -> None:
    wanted = fresh(Counted(), 3)
    kept(Counted(), 3)
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes().replace(b"\n1 ", b"\n1 !"))
    kept_file = sample_cache._Kept(file)
    for _ in range(2):
        with pytest.raises(KeyError):
            kept_file.read(1)
    kept_file.write(1, wanted[1])
    assert kept_file.read(1) == wanted[1]


def test_another_file_of_the_same_name_is_looked_at_anew(folder: Path) -> None:
    wanted = fresh(Counted(), 4)
    kept(Counted(), 4)
    (file,) = folder.iterdir()
    reader = sample_cache._Kept(file)
    assert reader.read(3) == wanted[3]
    file.unlink()
    sample_cache._Kept(file).write(5, wanted[1])  # shorter than what was read of the old one
    assert reader.read(5) == wanted[1]
    with pytest.raises(KeyError):
        reader.read(0)


def test_a_payload_under_another_number_is_not_taken_for_it(folder: Path) -> None:
    wanted = fresh(Counted(), 3)
    kept(Counted(), 3)
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes().replace(b"\n2 ", b"\n1 "))
    assert kept(Counted(), 3) == wanted


def test_a_file_that_goes_while_it_is_read_is_made_again(folder: Path) -> None:
    wanted = fresh(Counted(), 6)
    kept(Counted(), 6)
    stream = kept_examples(Counted(), 8, WORDS, 0)
    found = list(islice(stream, 2))
    for file in folder.iterdir():
        file.unlink()
    assert found + list(islice(stream, 4)) == wanted


def test_two_at_once_share_a_file(folder: Path) -> None:
    wanted, found = fresh(Counted(), 60, 200), []

    def work() -> None:
        found.append(kept(Counted(), 60, 200))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 4
    assert len(list(folder.iterdir())) == 1
    Counted.made.clear()
    assert kept(Counted(), 60, 200) == wanted
    assert Counted.made == []


def test_a_folder_that_cannot_be_written_only_costs_the_time(tmp_path: Path) -> None:
    (tmp_path / "samples").write_text("in the way")
    for _ in range(2):
        assert kept(Counted()) == fresh(Counted())


def test_the_folder_stays_within_its_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(6):
        kept(Counted(), 4, seed=seed)
        (newest,) = (file for file in folder.iterdir() if file.stat().st_mtime > 1000)
        os.utime(newest, (seed, seed))
    kept(Counted(), 1, seed=0)  # used: no longer the oldest
    one = newest.stat().st_size
    monkeypatch.setattr(sample_cache, "LIMIT", 4.5 * one)
    kept(Counted(), 4, seed=9)
    Counted.made.clear()
    kept(Counted(), 4, seed=0)
    kept(Counted(), 4, seed=9)
    assert Counted.made == []
    assert len(list(folder.iterdir())) == 5  # four that were within it, and the new one
    kept(Counted(), 1, seed=1)  # not used for longest
    assert Counted.made == [0]


def test_the_cache_command_clears_samples(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(Counted())
    assert cli.main(["cache", "--clear"]) == 0
    assert "cleared" in capsys.readouterr().out
    assert not folder.exists()
