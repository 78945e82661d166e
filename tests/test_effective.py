"""Effective lengths of curves whose answers are known, and how sure they are."""

from __future__ import annotations

import shutil

import pytest

from report_records import FIXTURES, cell, share, stored
from ropebench.cli import main
from ropebench.errors import UsageError
from ropebench.report.cells import blocks, cell_rows
from ropebench.report.effective import Enough, absolute, curves, effective_table, effective_text, relative
from ropebench.report.paired import by_cell

RECALL = [{"name": "recall", "direction": "higher", "low": 0.0, "high": 1.0, "chance": 0.0, "derived": None}]
NLL = [
    {"name": "perplexity", "direction": "lower", "low": 1.0, "high": None, "chance": None, "derived": ["exp", "nll"]},
    {"name": "nll", "direction": "lower", "low": 0.0, "high": None, "chance": None, "derived": None},
]  # fmt: skip


def scores(of=40, **right):
    """Right answers by method at 1024, 2048 (the window), 4096 and 8192 tokens."""
    made = [cell("kv", method, 1024 * 2**k, {"recall": share(count, of)}, metrics=RECALL)
            for method, counts in right.items() for k, count in enumerate(counts)]  # fmt: skip
    records, samples = stored(*made)
    [block] = blocks(cell_rows(records, samples))
    return block, samples, records


def test_relative_and_absolute_are_two_questions():
    """The unmodified model has 30 of 40 at 1024 tokens: 85 % of that are 25.5. RULER's threshold asks for 34.24."""
    block, samples, _ = scores(none=[30, 30, 10, 0], yarn=[36, 30, 26, 25], pi=[20, 20, 20, 20])
    known = curves(block, samples, "recall")
    assert [relative(block, known, label, False).tokens for label in block.labels] == [2048, 0, 4096]
    assert [absolute(known, label).tokens for label in block.labels] == [0, 0, 1024]
    assert absolute(known, "yarn×2", threshold=60).tokens == 8192


def test_the_interval_is_wide_where_the_curve_is_near_the_threshold():
    block, samples, _ = scores(none=[40, 40, 0, 0], yarn=[40, 40, 35, 0])
    known = curves(block, samples, "recall")
    near, far = relative(block, known, "yarn×2", False), relative(block, known, "none", False)
    assert (near.tokens, near.low, near.high) == (4096, 2048, 4096)
    assert (far.tokens, far.low, far.high) == (2048, 2048, 2048)
    assert effective_text(block, near) == "4096 (2×) [2048–4096]"


def test_five_right_answers_are_no_certainty_and_fifty_are():
    block, samples, _ = scores(5, none=[5, 5, 5, 5])
    few = absolute(curves(block, samples, "recall"), "none")
    assert (few.tokens, few.low) == (8192, 0)
    block, samples, _ = scores(60, none=[60, 60, 60, 60])
    many = absolute(curves(block, samples, "recall"), "none")
    assert (many.tokens, many.low, many.open) == (8192, 8192, True)
    assert effective_text(block, many) == "≥ 8192 (4×) [8192]"


def test_four_samples_have_a_length_and_no_interval():
    block, samples, _ = scores(4, none=[4, 4, 4, 4])
    found = absolute(curves(block, samples, "recall"), "none")
    assert (found.tokens, found.low) == (8192, None)


def test_perplexity_is_measured_at_the_window():
    """At 2048 tokens e^2; 1 ÷ 0.85 times that are e^2.1625."""
    levels = {"none": (2.5, 2.0, 4.0), "yarn": (2.6, 2.1, 2.15), "pi": (2.6, 2.2, 2.1)}
    made = []
    for method, found in levels.items():
        for length, level in zip((1024, 2048, 4096), found, strict=True):
            values = {"perplexity": [1.0] * 8, "nll": [level + 0.001 * k for k in range(8)]}
            made.append(cell("prose", method, length, values, metrics=NLL))
    records, samples = stored(*made)
    [block] = blocks(cell_rows(records, samples))
    known = curves(block, samples, "nll")
    assert [relative(block, known, label, True).tokens for label in block.labels] == [2048, 4096, 4096]


def test_what_counts_as_enough_can_be_asked_for():
    """60 % of 30 of 40 are 18; a share of nothing is refused by the name of its flag."""
    block, samples, records = scores(none=[30, 30, 10, 0], yarn=[36, 30, 26, 15])
    table = effective_table(block, samples, by_cell(records), Enough(share=60, threshold=40))
    assert table.columns[1:3] == ("effective length (60 % of none)", "effective length (≥ 40 %)")
    assert [cell.partition(" (")[0] for cell in table.rows[1][1:3]] == ["4096", "4096"]
    assert "keeps 60 % of the recall" in table.notes[0]
    with pytest.raises(UsageError, match=r"--effective-share 0: .* such as 85"):
        Enough(share=0)
    with pytest.raises(UsageError, match="--effective-threshold 101"):
        Enough(threshold=101)


def test_the_command_line_asks_for_it(tmp_path, capsys):
    for file in FIXTURES.glob("fixture*.jsonl"):
        shutil.copy(file, tmp_path)
    words = ["report", "--results", str(tmp_path)]
    assert main([*words, "--effective-share", "60"]) == 0
    assert "effective length (60 % of none)" in capsys.readouterr().out
    for flag in ("--effective-share", "--effective-threshold"):
        assert main([*words, flag, "0"]) == 2
        assert f"{flag} 0: a percentage above 0" in capsys.readouterr().err


def test_the_table_has_the_tax_at_every_length_inside_the_window():
    block, samples, records = scores(none=[40, 40, 0, 0], yarn=[30, 38, 35, 0])
    table = effective_table(block, samples, by_cell(records))
    assert table.columns[-2:] == ("tax at 1024 (0.5×)", "tax at 2048 (1×)")
    assert table.rows[1][3].startswith("−25 [")
    assert table.rows[1][3].endswith("*")


def test_no_table_without_something_beyond_the_window():
    records, samples = stored(*(cell("kv", m, 1024, {"recall": share(5, 9)}, metrics=RECALL) for m in ("none", "yarn")))
    [block] = blocks(cell_rows(records, samples))
    assert effective_table(block, samples, by_cell(records)) is None


@pytest.mark.parametrize("clusters, wide", [(40, False), (5, True)])
def test_samples_of_few_texts_make_it_less_sure(clusters, wide):
    right = [1.0] * 36 + [0.0] * 4
    names = [f"text {k * clusters // 40}" for k in range(40)]
    made = [cell("kv", "none", at, {"recall": right}, metrics=RECALL, clusters=names) for at in (1024, 2048, 4096)]
    records, samples = stored(*made)
    [block] = blocks(cell_rows(records, samples))
    found = absolute(curves(block, samples, "recall"), "none", threshold=75)
    assert (found.low < found.tokens) == wide
