"""`ropebench lens spectrum` and `dependence` as a person types them: what comes back and is stored, and that mistakes
are said, with the bound, before weights are loaded."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import fakes
from report_records import lines
from ropebench import cli, store
from ropebench.lens import record as lens_records
from ropebench.report import lens as lens_report
from ropebench.report.tables import as_text

WORDS = "the a needle hay stack of and is in to red blue seven model window length token long short with for".split()


def prose(sentences: int, seed: int = 0) -> str:
    """Sentences that keep to one word for a while, so that letters depend on those before."""
    rng = Random(f"prose {seed}")
    return " ".join(" ".join([rng.choice(WORDS)] * rng.randrange(1, 5)) + "." for _ in range(sentences))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model and two folders of text."""
    folder = tmp_path_factory.mktemp("home")
    fakes.save_tiny(folder / "model", max_position_embeddings=64)
    for seed, name in enumerate(("one", "other")):
        (folder / name).mkdir()
        for page in range(4):
            (folder / name / f"page-{page}.txt").write_text(prose(2_000, 10 * seed + page), encoding="utf-8")
    fakes.save_tiny(folder / "bare", kind="gpt2", n_positions=64, n_embd=32, n_head=4, n_layer=1)
    (folder / "letters").mkdir()
    rng = Random("letters")
    noise = "".join(chr(rng.randrange(32, 127)) for _ in range(60_000))
    (folder / "letters" / "a.txt").write_text(noise, encoding="utf-8")
    return folder


@pytest.fixture
def here(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(home)
    return tmp_path


def refused(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(words.split()) == 2
    return capsys.readouterr().err


SPECTRUM = "lens spectrum --model model --docs one --docs other --n 5 --length 32 --method yarn,mrrope_pro --random 2"
DEPENDENCE = "lens dependence --docs one --distance 128 --classes 16 --vocabularies 300"


@pytest.fixture(scope="module")
def measured(home: Path) -> Path:
    """A folder with what both commands measured (r), printed (*.txt) and drew (out)."""
    with contextlib.chdir(home):
        for words in (SPECTRUM, f"{DEPENDENCE} --model model"):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                assert cli.main([*words.split(), "--results", str(home / "r"), "--out", str(home / "out")]) == 0
            (home / f"{words.split()[1]}.txt").write_text(out.getvalue(), encoding="utf-8")
    return home


def of(measured: Path, what: str) -> Any:
    """The one record of a kind, and what was printed when it was measured."""
    (record,) = lens_records.newest(store.read(measured / "r"), what)
    return record, (measured / f"{what}.txt").read_text(encoding="utf-8")


def test_a_spectrum_is_stored_and_shown_again_from_its_record(measured):
    record, printed = of(measured, "spectrum")
    lens = record["lens"]
    assert (record["kind"], lens["what"], lens["n"], lens["length"]) == ("lens", "spectrum", 5, 32)
    assert [one["label"] for one in lens["tables"]] == ["none", "yarn×2", "mrrope_pro×2"]
    assert [one["label"] for one in lens["domains"]] == list(lens["tables"][0]["domains"]) == ["one", "other"]
    for table in lens["tables"]:
        for domain in table["domains"].values():
            assert sum(domain["shares"]) == pytest.approx(1)
            assert all(
                low <= p <= high for low, p, high in zip(domain["low"], domain["shares"], domain["high"], strict=True)
            )
            assert len(domain["variants"]) == 8
    assert lens["tables"][1]["inv_freq"][-1] == pytest.approx(lens["tables"][0]["inv_freq"][-1] / 2)  # read back
    assert 0 < lens["stability"]["between"][0]["similarity"] <= 1
    assert len(lens["stability"]["within"]) == 2
    assert [row["label"] for row in lens["scores"]["methods"]] == ["none", "yarn×2", "mrrope_pro×2"]
    for row in lens["scores"]["methods"]:
        assert all(band["beyond"]["moved"]["low"] is not None for band in row["bands"].values())
    assert lens["random"]["inits"] == 2
    assert printed == "\n".join(map(as_text, lens_report.tables(record)))
    for promise in ("causal/mean_square/share", "all/square_mean/energy", "Σcos(mθ) ≥ 0", "turns in 64", "moved"):
        assert promise in printed
    names = sorted(path.name.partition("_")[0] for path in (measured / "out").glob("lens-spectrum-*"))
    assert names == ["lens-spectrum-model"] * 4  # PNG and SVG of the spectrum and of the scores


def test_a_spectrum_is_the_same_twice_and_another_setting_is_another_cell(here, capsys):
    plain = "lens spectrum --model model --docs one --n 2 --length 32 --results"
    for extra in ("", "", "--bos always", "--n 3"):
        assert cli.main([*plain.split(), str(here / "r"), *extra.split()]) == 0
    a, b, c, d = store.read(here / "r")
    assert a["cell_id"] == b["cell_id"]
    assert a["lens"]["tables"] == b["lens"]["tables"]
    assert len({a["cell_id"], c["cell_id"], d["cell_id"]}) == 3
    assert lens_records.newest(store.read(here / "r")) == [b, c, d]


def test_a_dependence_has_its_width_beside_the_models_effective_frequency(measured):
    one, printed = of(measured, "dependence")
    assert one["lens"]["source"]["label"] == "one"
    names = [row["name"] for row in one["lens"]["granularities"]]
    assert sorted(names) == ["bpe-300", "bytes", "tokens of model"]
    assert names[0] == "bytes"
    for row in one["lens"]["granularities"]:
        assert row["shown"][0]
        assert row["mi"][0] > 10 * row["bias"][0]
        assert row["classes"] <= 16
        w = row["width"]
        assert 1 <= w["low"] <= w["value"] <= w["high"]
    beside = one["lens"]["beside"]
    w = next(row for row in one["lens"]["granularities"] if row["name"] == "tokens of model")["width"]
    assert beside["pi_over_width"]["value"] == pytest.approx(np.pi / w["value"])
    assert beside["pi_over_width"]["low"] == pytest.approx(np.pi / w["high"])
    assert beside["ratio"] == pytest.approx(beside["theta_eff"]["value"] / beside["pi_over_width"]["value"])
    assert "θ_eff ÷ (π/W)" in printed
    assert "self-similarity" in printed
    assert len(list((measured / "out").glob("lens-dependence-one_*.png"))) == 1
    assert "](lens-dependence-one_" in (measured / "out" / "lens.md").read_text(encoding="utf-8")


def test_drills_of_an_arithmetic_task_are_a_corpus_too(here, capsys):
    words = "lens dependence --task arithmetic/addition --samples 3000 --vocabularies 300 --distance 64 --classes 16"
    assert cli.main([*words.split(), "--results", str(here / "r")]) == 0
    (record,) = store.read(here / "r")
    assert record["lens"]["source"]["kind"] == "task"
    assert record["lens"]["source"]["name"] == "arithmetic/addition"
    assert record["model"] is None
    assert record["lens"]["beside"] is None
    words = "lens spectrum --model model --docs one --task arithmetic/addition --samples 200 --n 2 --length 32"
    assert cli.main([*words.split(), "--results", str(here / "r")]) == 0
    domains = list(store.read(here / "r"))[1]["lens"]["domains"]
    assert [one["label"] for one in domains] == ["one", record["lens"]["source"]["label"]]
    assert "drills of task arithmetic/addition" in domains[1]["source"]
    assert domains[1]["identity"]


def test_records_name_no_path_and_hold_no_odd_number(measured):
    for line in "".join(file.read_text(encoding="utf-8") for file in (measured / "r").glob("*.jsonl")).splitlines():
        assert str(measured) not in line
        record = json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} in a record"))
        assert record["schema"] == 2
        assert "commit" in record["provenance"]
        assert record["provenance"]["versions"]["torch"]


def test_what_is_stored_is_shown_and_drawn_again_without_measuring(measured, tmp_path, capsys):
    assert cli.main(["lens", "report", "--results", str(measured / "r"), "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert all(of(measured, what)[1] in shown for what in ("spectrum", "dependence"))
    assert len(list(tmp_path.glob("*.png"))) == 3
    assert "no records of spectrum" in refused(f"lens report --results {tmp_path / 'none'}", capsys)


def test_the_page_of_the_stored_records_is_made_from_them_alone():
    folder = Path(__file__).parents[1] / "results" / "lens"
    records = [r for r in lens_records.newest(store.read(folder)) if r["lens"]["what"] in ("spectrum", "dependence")]
    assert records
    assert (folder / "lens.md").read_text(encoding="utf-8") == lens_report.document(records)
    for record in records:
        assert (folder / f"{lens_report.stem(record)}.png").exists()


def test_lens_records_are_in_no_table_of_tasks(measured, tmp_path, capsys):
    """In one folder, a report and a leaderboard are those of the task records alone."""
    shown = []
    for name in ("both", "alone"):
        run, board = fakes.writer(tmp_path / name, "run"), tmp_path / f"board-{name}"
        for line in lines("fixture.jsonl") + (list(store.read(measured / "r")) if name == "both" else []):
            run.record(line)
        assert cli.main(["report", "--results", str(tmp_path / name)]) == 0
        assert cli.main(["leaderboard", "--results", str(tmp_path / name), "--out", str(board)]) == 0
        pages = {path.name: path.read_bytes() for path in board.iterdir() if path.suffix in (".md", ".csv", ".html")}
        shown.append((capsys.readouterr().out.replace(f"board-{name}", ""), pages))
    assert shown[0] == shown[1]
    assert "README.md" in shown[0][1]
    assert "no records" in refused(f"report --results {measured / 'r'}", capsys)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("spectrum", "no model: give --model NAME"),
        ("spectrum --model model --n 0", "allowed: --n from 1"),
        ("spectrum --model model --method yarm", "yarn"),
        ("spectrum --model model --docs one --length 8", "the least is 16"),
        ("spectrum --model model --docs one --length 64 --n 90000", "90000 are wanted; give --n "),
        ("spectrum --model model --docs one --docs one", "two domains are called 'one'; write NAME=FOLDER"),
        ("spectrum --model bare --docs one", "RoPE"),
        ("spectrum --model nowhere", "nowhere"),
        ("dependence --docs one --distance 500000", "the texts are too short for it"),
        ("dependence --docs one --vocabularies 300,90000 --distance 64", "vocabulary 90000: too large for a text of"),
        ("dependence --docs one --vocabularies 200 --distance 64", "a byte-level one has at least 257 tokens"),
        ("dependence --docs one --classes 65", "--classes 65: allowed: 2 to 64"),
        ("dependence --docs one --share 1.5", "--share 1.5: must be above 0 and below 1"),
        ("dependence --docs one --distance soon", "soon"),
        ("dependence --docs one --vocabularies many", "many"),
        ("dependence --task niah", "task 'niah' has no drills to look at; allowed: the arithmetic/"),
        ("dependence --docs letters --classes 64 --distance 64 --vocabularies 300", "more than a tenth of the mutual"),
    ],
)  # fmt: skip
def test_what_cannot_be_looked_at_is_said_with_the_bound(words, says, here, capsys, monkeypatch):
    monkeypatch.setattr("ropebench.model.load", lambda *_: pytest.fail("weights were loaded first"))
    message = refused(f"lens {words} --results {here / 'r'}", capsys)
    assert says in message
    assert "Traceback" not in message
    assert not list(here.glob("r/*.jsonl"))


def test_the_bound_that_is_named_is_one_that_works(here, capsys):
    words = f"lens dependence --docs one --classes 16 --vocabularies 300 --results {here} --distance"
    message = refused(f"{words} 500000", capsys)
    bound = message.split("give --distance ")[1].split()[0]
    from ropebench.arguments import parser
    from ropebench.lens import corpora, study

    options = parser(cli.COMMANDS).parse_args([*words.split(), bound])
    (source,) = study._sources(options)
    found, _ = corpora.granularities(source, [300], 16)
    assert min(corpora.reaches(found, int(bound))) >= 1


def test_help_names_what_is_measured(capsys):
    for topic, promise in (("spectrum", "--score-length"), ("dependence", "--vocabularies")):
        with pytest.raises(SystemExit):
            cli.main(["lens", topic, "--help"])
        assert promise in capsys.readouterr().out
