"""Ranks, verdicts and advice: what is said of methods, and how sure it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from report_records import block, cell, pick, share, stored
from ropebench.report import advice, summary, tables
from ropebench.report.advice import in_short
from ropebench.report.limits import limits
from ropebench.report.paired import by_cell, difference_table, ranking


def test_methods_that_saw_other_samples_are_flagged_and_not_ranked(records, samples):
    assert ranking(block(records, samples, "proofpile"), samples, "nll", 4096) is not None
    other = pick(records, "proofpile", "yarn", 4096)
    other["task"]["samples_sha256"] = "other"
    for row in samples[other["cell_id"]]:
        row["prompt_sha256"] += " other"
    found = block(records, samples, "proofpile")
    assert found.disagreeing() == [4096]
    assert (
        "NOT COMPARABLE at 4096: the methods saw different samples (none, pi×2 ≠ yarn×2)" in tables.table(found).notes
    )
    assert ranking(found, samples, "nll", 4096) is None
    assert difference_table(found, samples, "nll").rows[1][3] == ""
    assert "at 2048 tokens" in summary.verdict(found, samples, by_cell(records))[0]


def test_methods_with_more_samples_are_compared_on_those_in_common(records, samples):
    """yarn has 8 documents, the others 6: values are over each one's own, ranks and differences over the 6."""
    for method in ("none", "pi"):
        less = pick(records, "proofpile", method, 4096)
        less["task"]["samples_sha256"] = "the first six"
        samples[less["cell_id"]] = samples[less["cell_id"]][:6]
    found = block(records, samples, "proofpile")
    assert found.common(4096) == 6
    said = "at 4096 the methods have different samples (none, pi×2 ≠ yarn×2): each value is over its own; ranks are "
    assert any(note.startswith(said + "over the 6 ") for note in tables.table(found).notes)
    assert {one.n for one in ranking(found, samples, "nll", 4096).against.values()} == {6}
    assert "*" in difference_table(found, samples, "nll").rows[1][3]


def test_ranks_are_shared_where_the_paired_interval_holds_zero(records, samples):
    found = ranking(block(records, samples, "proofpile"), samples, "nll", 4096)
    assert found.labels == ("yarn×2", "pi×2", "none")
    assert found.rank == {"yarn×2": 1, "pi×2": 2, "none": 2}
    assert found.tied == ()
    inside = ranking(block(records, samples, "proofpile"), samples, "nll", 2048)
    assert inside.rank == {"none": 1, "yarn×2": 2, "pi×2": 3}


def test_few_needles_rank_nothing(records, samples):
    found = ranking(block(records, samples, "niah"), samples, "recall", 1024)
    assert not found.testable
    assert set(found.rank.values()) == {1}
    said = summary.verdict(block(records, samples, "niah"), samples, by_cell(records))
    assert said[0].endswith("recall is highest with yarn×2 (67 %), but 3 samples are too few to test any two methods.")
    assert not any("Cost" in line for line in said)
    assert not any(line.startswith("From 1024 to") for line in said)  # 5 depths there, 3 here: no change to speak of


@pytest.mark.parametrize("n, decided", [(6, False), (7, True)])
def test_ranks_are_corrected_for_the_number_of_pairs(n, decided):
    """yarn right n times, the others never: p = 2 · ½ⁿ, which three pairs make 9 % with 6 samples, 5 % with 7."""
    made = [cell("probe", method, 4096, {"exact_match": share(right, n)}) for method, right in
            (("none", 0), ("pi", 0), ("yarn", n))]  # fmt: skip
    records, samples = stored(*made)
    found = ranking(block(records, samples, "probe"), samples, "exact_match", 4096)
    assert found.pairs == 3
    assert found.against["none"].p == pytest.approx(2 * 0.5**n)
    assert found.against["none"].adjusted == pytest.approx(3 * 2 * 0.5**n)
    assert found.testable == decided
    assert found.rank == ({"yarn×2": 1, "none": 2, "pi×2": 2} if decided else {"yarn×2": 1, "none": 1, "pi×2": 1})


def test_a_few_documents_are_not_tested_and_what_all_agree_on_is_said(records, samples):
    for cell_id, rows in samples.items():
        samples[cell_id] = rows[:4]
    shown, cells = block(records, samples, "proofpile"), by_cell(records)
    found = ranking(shown, samples, "nll", 4096)
    assert not found.testable
    assert set(found.rank.values()) == {1}
    said = summary.verdict(shown, samples, cells)
    assert said[0] == (
        "proofpile[fixture-docs]: at 4096 tokens (2× the trained window) perplexity (no BOS) is lowest with yarn×2 "
        "(8.37), but 4 documents are too few to test any two methods. All 4 agree that it is better than pi×2 (24.5), "
        "none (30.0)."
    )
    assert said[2].startswith("Cost inside the window (1024–2048 tokens, largest loss against none, not tested: n too")
    assert difference_table(shown, samples, "nll").rows[0][1] == "+0.950 [n too small]"
    seen = summary.glance([shown], samples, cells)
    assert seen.columns == ("task", "none", "pi×2", "yarn×2")
    assert [row[1:] for row in seen.rows] == [("30.0 · ?", "24.5 · ?", "8.37 · ?"), ("", "+0.950", "+0.015")]
    assert in_short([shown], samples, cells).rows == (
        (
            "proofpile[fixture-docs]: perplexity, no BOS", "4096 (2×)", "yarn×2 (8.37)", "pi×2 (24.5), none (30.0)",
            "4 documents: too few for a test (at least 5); all 4 say so",
        ),
    )  # fmt: skip


def test_in_short(records, samples):
    found = in_short([block(records, samples, task) for task in ("proofpile", "niah")], samples, by_cell(records))
    assert [row[2:] for row in found.rows] == [
        ("yarn×2 (8.37)", "pi×2 (24.5), none (30.0)",
         "tested on 8 documents (paired, 5 % level, corrected for 3 pairs)"),
        ("nothing can be said", "", "3 samples: too few for a test (at least 6)"),
    ]  # fmt: skip


def test_in_short_counts_the_tasks_that_bear_on_the_question(records, samples):
    both = [block(records, samples, task) for task in ("niah", "proofpile")]
    said = "tasks looked beyond the trained window of 2048 tokens, and"
    assert in_short(both, samples, by_cell(records)).notes == (f"2 of 2 {said} 1 of these tells methods apart there",)
    inside = [record for record in records if record["condition"]["length"] <= 2048 or "niah" in record["cell_id"]]
    both = [block(inside, samples, task) for task in ("proofpile", "niah")]
    found = in_short(both, samples, by_cell(inside))
    assert [row[0].partition("[")[0] for row in found.rows] == ["niah:number", "proofpile"]  # what decides comes first
    assert found.notes == (f"1 of 2 {said} 0 of these tell methods apart there",)


def test_in_short_names_the_method_that_the_others_are_tested_against(records, samples, monkeypatch):
    """What is behind the best method need not be behind one that ties with it."""
    shown = block(records, samples, "proofpile")
    found = ranking(shown, samples, "nll", 4096)
    best, second, third = found.labels
    against = {**found.against, second: replace(found.against[second], p=1.0, adjusted=1.0)}
    monkeypatch.setattr(advice, "deciding", lambda *_: replace(found, against=against))
    (row,) = in_short([shown], samples, by_cell(records)).rows
    assert row[2].startswith(f"one of {best} (")
    assert second in row[2]
    assert third in row[3]
    assert row[4] == f"tested against {best} on 8 documents (paired, 5 % level, corrected for 3 pairs)"


def test_where_nothing_beats_the_unmodified_model_it_is_taken(records, samples):
    records = [record for record in records if record["condition"]["length"] <= 2048]
    (row,) = in_short([block(records, samples, "proofpile")], samples, by_cell(records)).rows
    assert row[2:4] == ("none (9.03)", "yarn×2 (9.16), pi×2 (23.3)")


def test_an_unmodified_model_that_could_not_be_tested_is_not_taken(records, samples, monkeypatch):
    """0 % against 100 % in too few haystacks for the sign test is no tie."""
    shown = block(records, samples, "proofpile")
    found = ranking(shown, samples, "nll", 4096)
    best, worse, last = found.labels
    assert last == "none"
    open_one = replace(found.against[last], low=None, high=None, p=0.06, adjusted=0.12)
    monkeypatch.setattr(advice, "deciding", lambda *_: replace(found, against={**found.against, last: open_one}))
    (row,) = in_short([shown], samples, by_cell(records)).rows
    assert row[2] == f"{best} (8.37); too few samples to test: none (30.0)"
    assert row[3].startswith(f"{worse} (")


def test_verdict(records, samples):
    assert summary.verdict(block(records, samples, "proofpile"), samples, by_cell(records)) == [
        "proofpile[fixture-docs]: at 4096 tokens (2× the trained window) perplexity (no BOS) is lowest with yarn×2 "
        "(8.37). Worse on the same samples (paired, corrected for 3 pairs), in nats per token: pi×2 +1.075 [+0.769, "
        "+1.381]; none +1.275 [+1.236, +1.314].",
        "From 2048 to 4096 tokens perplexity goes: none 9.03 → 30.0; yarn×2 9.16 → 8.37.",
        "Cost inside the window (1024–2048 tokens, largest loss against none): yarn×2 +0.015 [+0.011, +0.019] "
        "nats per token = +1.5 % perplexity at 1024.",
    ]


def test_needles_of_one_haystack_are_said_to_share_it(records, samples):
    for rows in samples.values():
        for row in rows:
            row["meta"]["cluster"] = "the only one"
    said = " ".join(limits([block(records, samples, "niah")], samples, by_cell(records)))
    assert "The samples of a cell share 1 haystack, so they are fewer independent ones" in said
