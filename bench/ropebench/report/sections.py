"""Which tables a set of blocks has, in reading order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ropebench.report.cells import Block, Record, Samples
from ropebench.report.composite import composite_table
from ropebench.report.dissociation import dissociation_table
from ropebench.report.effective import ENOUGH, Enough, effective_table, effective_text, of_family
from ropebench.report.paired import compared_metric, difference_table
from ropebench.report.ruler_summary import families, family_table
from ropebench.report.tables import Table, table
from ropebench.stats import MIN_CLUSTERS


def tables_of(block: Block, samples: Samples, records: Mapping[str, Record], enough: Enough = ENOUGH) -> list[Table]:
    """The values of a block, then its differences to the baseline, its effective lengths, and the dissociation where
    the task has both metrics. Scores over too few haystacks have no differences: they would only look like evidence."""
    found = [table(block)]
    few = max(row["clusters"] for row in block.rows) < MIN_CLUSTERS
    differences = None if block.percent and few else difference_table(block, samples, compared_metric(block, records))
    far = effective_table(block, samples, records, enough)
    more = (differences, far, dissociation_table(block, samples, records))
    return [*found, *(one for one in more if one is not None)]


def composite_tables(blocks: Iterable[Block], samples: Samples) -> list[Table]:
    """One per model whose score tasks can be averaged."""
    by_model: dict[str, list[Block]] = {}
    for block in blocks:
        by_model.setdefault(block.first["model_id"], []).append(block)
    found = (composite_table(members, samples) for members in by_model.values())
    return [one for one in found if one is not None]


def family_tables(blocks: Iterable[Block], samples: Samples, enough: Enough = ENOUGH) -> list[Table]:
    """The means of task families, where all their tasks were run by some method at some length."""
    found = []
    for family in families(blocks):
        if not any(family.score(label, length) is not None for label in family.labels for length in family.lengths):
            continue
        reached = {}
        for label, far in of_family(family, samples, enough.threshold).items():
            whole = [length for length in family.lengths if family.score(label, length) is not None]
            reached[label] = effective_text(family.first, far, whole[0])
        found.append(family_table(family, reached, enough.threshold))
    return found
