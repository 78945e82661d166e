"""The summary's first table: at the longest length, what to take, rather than what, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ropebench.comparison import corrected, smallest_decisive_n
from ropebench.report.cells import Block, Record, Samples
from ropebench.report.paired import Ranking, compared_metric, difference
from ropebench.report.ruler_summary import Family, families
from ropebench.report.summary import behind, deciding, independent, named
from ropebench.report.tables import Table
from ropebench.ruler.scoring import NUMBER_OF_TASKS
from ropebench.stats import MIN_CLUSTERS


def in_short(blocks: Sequence[Block], samples: Samples, records: Mapping[str, Record]) -> Table | None:
    """One line per task, or per family of tasks that has a mean."""
    rows = [_of_family(family, samples, records) for family in whole_families(blocks)]
    for block in outside(blocks):
        found = deciding(block, samples, compared_metric(block, records))
        if found is None and not block.uninformative:
            continue
        name = " · ".join((block.first["task_label"], *block.qualifiers))
        if found is None:
            rows.append((name, "", "nothing can be said", "", "uninformative: the model cannot do this in its window"))
            continue
        where = f"{found.length} ({block.multiple(found.length)})"
        rows.append((f"{name}: {block.measure}", where, *_advice(block, found), _how_sure(block, found)))
    columns = ("task", "tokens (× trained window)", "take", "rather than", "how sure")
    return Table("In short", columns, tuple(rows), None, (_scope(rows, blocks[0]),)) if rows else None


def _scope(rows: Sequence[tuple[str, ...]], block: Block) -> str:
    """How many of the lines bear on the question that is asked here, and how many of those decide it."""
    beyond = [row for row in rows if row[1] and int(row[1].partition(" ")[0]) > block.trained_length]
    decided = sum(bool(row[3]) for row in beyond)
    return (
        f"{len(beyond)} of {len(rows)} task{'s' if len(rows) > 1 else ''} looked beyond the trained window of "
        f"{block.trained_length} tokens, and {decided} of these "
        f"{'tells' if decided == 1 else 'tell'} methods apart there"
    )


def _advice(block: Block, found: Ranking) -> tuple[str, str]:
    """What to take at the deciding length, and rather than what."""
    worse = behind(block, found)
    leaders = [label for label in found.labels if label not in worse]
    if not worse:
        nothing = "no method is told apart" if found.testable else "nothing can be said"
        return nothing, ""
    rather = named(block, worse, found.length)
    # Where even unanimous samples are too few for the test, no difference is no tie: it is not advice to stay.
    untested = [label for label in leaders if label in found.against and found.against[label].low is None]
    if block.baseline in untested:
        sure = [label for label in leaders if label not in untested]
        one_of = "one of " if len(sure) > 1 else ""
        few = f"; too few samples to test: {named(block, untested, found.length)}"
        return one_of + named(block, sure, found.length) + few, rather
    if block.baseline in leaders:
        others = ": nothing is shown to be better" if len(leaders) > 1 else ""
        return named(block, [block.baseline], found.length) + others, rather
    one_of = "one of " if len(leaders) > 1 else ""
    return one_of + named(block, leaders, found.length), rather


def _how_sure(block: Block, found: Ranking) -> str:
    """On how many independent samples, and whether by a test."""
    number_of = independent(block, found)
    if found.testable:
        pairs = f", corrected for {found.pairs} pairs" if found.pairs > 1 else ""
        # A method behind the best need not be behind those that tie with it.
        against = f" against {found.best}" if behind(block, found) and found.tied else ""
        return f"tested{against} on {number_of} (paired, 5 % level{pairs})"
    shared = any(one.clusters < one.n for one in found.against.values())
    needed = smallest_decisive_n(found.pairs) if block.percent and not shared else MIN_CLUSTERS
    few = f"{number_of}: too few for a test (at least {needed})"
    return f"{few}; all {found.clusters} say so" if behind(block, found) else few


def whole_families(blocks: Sequence[Block]) -> list[Family]:
    """Families whose mean two methods have at one length, so that it can stand for their tasks."""
    return [family for family in families(blocks) if _longest(family) is not None]


def outside(blocks: Sequence[Block]) -> list[Block]:
    """The blocks that no such family stands for; those that look beyond the trained window come first."""
    inside = [block for family in whole_families(blocks) for block in family.blocks]
    alone = [block for block in blocks if not any(block is one for one in inside)]
    return sorted(alone, key=lambda block: block.lengths[-1] <= block.trained_length)


def _longest(family: Family) -> int | None:
    for length in reversed(family.lengths):
        if sum(family.score(label, length) is not None for label in family.labels) > 1:
            return length
    return None


def _of_family(family: Family, samples: Samples, records: Mapping[str, Record]) -> tuple[str, ...]:
    """Methods by their mean; against the best one, in how many tasks each is shown to be worse."""
    length = _longest(family) or 0
    means = {label: score for label in family.labels if (score := family.score(label, length)) is not None}
    best, *others = sorted(means, key=lambda label: -means[label])
    found = {}
    for block in family.blocks:
        for label in others:
            value = difference(block, samples, compared_metric(block, records), label, best, length)
            if value is not None:
                found[block.first["task_name"], label] = value
    worse = dict.fromkeys(others, 0)
    for (_, label), value in corrected(found).items():
        worse[label] += value.decided and value.value < 0

    def text(label: str, more: str = "") -> str:
        return f"{label} ({100 * means[label]:.1f} %{more})"

    leaders = [text(label) for label in (best, *others) if not worse.get(label)]
    rather = [text(label, f"; worse in {worse[label]}") for label in others if worse[label]]
    take = ("one of " if len(leaders) > 1 else "") + ", ".join(leaders)
    where = f"{length} ({family.first.multiple(length)})"
    sure = f"tested in each of {NUMBER_OF_TASKS} tasks (paired, 5 % level, corrected for {len(found)} comparisons)"
    if not rather:
        take = "no method is told apart"
    return f"{family.label}: mean of {NUMBER_OF_TASKS} tasks", where, take, ", ".join(rather), sure
