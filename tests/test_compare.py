"""`ropebench compare` on made-up data whose answers are known."""

from __future__ import annotations

import json

import pytest

from report_records import cell, share, stored
from ropebench.cli import main
from ropebench.errors import UsageError
from ropebench.report.compare import compare, compare_table, noise, side

RECALL = [{"name": "recall", "direction": "higher", "low": 0.0, "high": 1.0, "chance": 0.0, "derived": None}]
NLL = [{"name": "nll", "direction": "lower", "low": 0.0, "high": None, "chance": None, "derived": None}]


def kv(method, right, of=40, length=1024, **more):
    return cell("kv", method, length, {"recall": share(right, of)}, metrics=RECALL, **more)


def measured(*cells):
    return [(record, rows) for record, rows in cells]


def sides(known, a="yarn×2", b="none"):
    return side(a, known), side(b, known)


def test_difference_mcnemar_and_interval():
    """30 of 40 against 20, none the other way: p = 2 · ½¹⁰, 25 points."""
    a, b = sides(measured(kv("yarn", 30), kv("none", 20)))
    [line] = compare(a, b)
    assert (line.a, line.b, line.difference.value) == (0.75, 0.5, 0.25)
    assert (line.difference.kind, line.difference.p) == ("mcnemar", pytest.approx(2 * 0.5**10))
    table = compare_table(a, b, [line])
    assert table.rows[0][5].startswith("+25.0 [+")
    assert table.rows[0][5].endswith("]*")
    assert "McNemar's exact test" in table.notes[0]
    assert table.columns[3:5] == ("yarn×2", "none")
    assert "recall: points of 100, above 0 is better for the first" in table.notes[1]


def test_holm_over_the_table():
    known = measured(*(kv(m, r, length=at) for m, r in (("yarn", 28), ("none", 20)) for at in (1024, 2048, 4096)))
    lines = compare(*sides(known))
    assert [line.length for line in lines] == [1024, 2048, 4096]
    assert [line.difference.adjusted for line in lines] == pytest.approx([3 * 2 * 0.5**8] * 3)


def test_another_n_compares_the_samples_in_common_and_says_how_many():
    a, b = sides(measured(kv("yarn", 20, of=20), kv("none", 10, of=50)))
    [line] = compare(a, b)
    assert (line.difference.n, line.n_a, line.n_b, line.a, line.b) == (20, 20, 50, 1.0, 0.5)
    assert "20 in common of 20 and 50" in compare_table(a, b, [line]).rows[0]


def test_other_samples_are_refused():
    other, rows = kv("none", 20)
    for row in rows:
        row["prompt_sha256"] += " by another tokenizer"
    with pytest.raises(UsageError, match=r"yarn×2 and none: the samples are not identical: none of 40 and 40"):
        compare(*sides(measured(kv("yarn", 20), (other, rows))))


def test_clusters_are_respected():
    """12 haystacks, 10 of them better: each counts once, by the permutation of signs: 2^(1 − 10)."""
    names = [f"sample-{k // 5}" for k in range(60)]
    a = cell("kv", "yarn", 1024, {"recall": [1.0] * 60}, metrics=RECALL, clusters=names)
    b = cell("kv", "none", 1024, {"recall": [0.0] * 50 + [1.0] * 10}, metrics=RECALL, clusters=names)
    [line] = compare(*sides(measured(a, b)))
    assert (line.difference.clusters, line.difference.kind) == (12, "permutation")
    assert line.difference.p == pytest.approx(2.0**-9)


def test_likelihood_gets_the_permutation_test_and_bootstrap_t():
    values = [2.0 + 0.01 * k for k in range(20)]
    a = cell("prose", "yarn", 4096, {"nll": [v - 0.1 - 0.02 * (k % 3) for k, v in enumerate(values)]}, metrics=NLL)
    b = cell("prose", "none", 4096, {"nll": values}, metrics=NLL)
    [line] = compare(*sides(measured(a, b)))
    assert (line.difference.kind, line.difference.interval) == ("permutation", "bootstrap-t")
    assert line.difference.low < line.difference.value < line.difference.high < 0
    assert line.difference.decided


def test_what_could_have_been_shown_and_what_n_that_needs():
    known = measured(kv("yarn", 24), kv("none", 20))
    [line] = compare(*sides(known), detect=5)
    assert 0.1 < line.smallest < 0.3  # 4 of 40 differ
    assert line.needs > 40
    assert compare(*sides(known), detect=50)[0].needs < 40


def test_a_repeat_gives_the_noise_floor():
    again, rows = kv("none", 19)
    again["series"] = "again"
    known = measured(kv("yarn", 30), kv("none", 20))
    floors = noise([*known, (again, rows)])
    assert floors == {known[1][0]["cell_id"]: pytest.approx(1 / 40)}
    [line] = compare(*sides(known), repeats=floors)
    assert line.floor == pytest.approx(1 / 40)
    a, b = sides(known)
    assert compare_table(a, b, [line]).rows[0][-1] == "2.5"


def test_a_failed_cell_stands_there_by_its_status():
    bad, _ = kv("yarn", 0, length=4096)
    bad["outcome"] = {"status": "out_of_memory", "error": None, "metrics": {}, "primary": "recall"}
    known = measured(kv("yarn", 30), kv("none", 20), (bad, []), kv("none", 20, length=4096))
    a, b = sides(known)
    lines = compare(a, b)
    assert [line.status for line in lines] == ["ok", "yarn×2: out_of_memory"]
    assert compare_table(a, b, lines).rows[1][5] == "yarn×2: out_of_memory"


@pytest.mark.parametrize("word, said", [
    ("yarm", "did you mean"), ("model=nothing", "unknown model 'nothing'"),
])  # fmt: skip
def test_words_that_name_nothing(word, said):
    with pytest.raises(UsageError, match=said):
        side(word, measured(kv("yarn", 1), kv("none", 1)))


def test_sides_that_cannot_be_compared():
    known = measured(kv("yarn", 1), kv("none", 1, length=2048))
    with pytest.raises(UsageError, match="no cell that both have: yarn×2 has kv at 1024; none has kv at 2048"):
        compare(*sides(known))
    with pytest.raises(UsageError, match="two different methods"):
        compare(side("none", known), side("none", known))
    with pytest.raises(UsageError, match="is a model and"):
        compare(side("model=fixture-model", known), side("none", known))
    with pytest.raises(UsageError, match="unknown metric 'f1'"):
        compare(*sides(measured(kv("yarn", 1), kv("none", 1))), metric="f1")


def test_two_models_pair_by_method():
    other = [kv("none", 30), kv("yarn", 30)]
    for record, _ in other:
        record["model"] = {**record["model"], "id": "another"}
        record["cell_id"] += "-another"
    lines = compare(*sides(measured(kv("none", 20), kv("yarn", 20), *other), "model=another", "model=fixture-model"))
    assert [(line.method, line.difference.value) for line in lines] == [("none", 0.25), ("yarn×2", 0.25)]


@pytest.fixture
def folder(tmp_path):
    records, samples = stored(kv("yarn", 30), kv("none", 20))
    text = {"run.jsonl": records, "run.samples.jsonl": [row for rows in samples.values() for row in rows]}
    for name, lines in text.items():
        for line in lines:
            line |= {"schema": 1, "kind": line.get("kind", "sample"), "run_id": "20260101T000000Z-abc"}
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_the_command(folder, capsys):
    assert main(["compare", "yarnx2", "none", "--results", str(folder), "--detect", "10"]) == 0
    shown = capsys.readouterr().out
    assert "yarn×2 minus none" in shown
    assert "n needed" in shown
    assert main(["compare", "yarn", "none", "--length", "1k", "--json", "--results", str(folder)]) == 0
    [line] = json.loads(capsys.readouterr().out)
    assert (line["difference"]["value"], line["decided"]) == (0.25, True)
    assert main(["compare", "yarn", "none", "--length", "2k", "--results", str(folder)]) == 2
    assert "none here" in capsys.readouterr().err
    assert main(["compare", "yarn", "none", "--detect", "0", "--results", str(folder)]) == 2


def test_a_run_against_a_folder(folder, capsys):
    """The same records on both sides: nothing differs, and they pair by method."""
    assert main(["compare", "20260101T", str(folder), "--results", str(folder), "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)
    assert [(line["method"], line["difference"]["value"]) for line in lines] == [("none", 0.0), ("yarn×2", 0.0)]
