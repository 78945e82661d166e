"""What the lens found, as tables and plots: from records alone. A kind of lens record that is not known here (of a
later version) has a table that says so."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from ropebench.lens.dependence import width_within
from ropebench.record import digest
from ropebench.report.tables import Table, as_markdown

Record = Mapping[str, Any]
DEFAULT = "causal/mean_square/share"
README = "lens.md"
WORDS = (("causal", "all"), ("mean_square", "square_mean"), ("share", "energy"))  # of variants, in reading order
VARIANTS = tuple("/".join(words) for words in product(*WORDS))


def tables(record: Record) -> list[Table]:
    """The tables of one lens record, in reading order."""
    what = record["lens"]["what"]
    known: dict[str, Callable[[Record], list[Table]]] = {"spectrum": _spectrum, "dependence": _dependence}
    if what not in known:
        return [Table(f"lens {what}", ("record",), ((str(record["record_id"]),),), None, ("of a kind not shown here",))]
    return known[what](record)


def stem(record: Record) -> str:
    """The file name of a record's plot, without suffix; another for every cell."""
    lens = record["lens"]
    about = record["model"]["id"] if lens["what"] == "spectrum" else lens.get("source", {}).get("label", "")
    plain = re.sub(r"[^a-z0-9.=]+", "-", f"lens-{lens['what']}-{about}".lower()).strip("-.")
    return f"{plain}_{digest(record['cell_id'], 6)}"


def write(records: Sequence[Record], folder: Path) -> list[Path]:
    """lens.md with every table, and a PNG and SVG for each record; returns the files."""
    from ropebench.report.lens_plots import plot

    drawn = [path for record in records for path in plot(record, folder / stem(record))]
    page = folder / README
    page.write_text(document(records), encoding="utf-8", newline="\n")
    return [page, *drawn]


def document(records: Sequence[Record]) -> str:
    """All lens records as Markdown, with their plots."""
    parts = [_OPENING]
    for record in records:
        parts += [as_markdown(table) for table in tables(record)]
        if record["lens"]["what"] in ("spectrum", "dependence"):
            parts.append(f"![{tables(record)[0].title}]({stem(record)}.png)\n")
    return "\n".join(parts)


_OPENING = """# The lens

Which rotary frequencies models use, and how corpora depend on distance, from lens records. Brackets hold 95 %
intervals: over prompts for models (non-overlapping pieces of text, taken as independent), over parts of the text for
corpora (jackknife). The definitions are ropebench's own (see `bench/ropebench/lens/`): those of the paper behind them
(arXiv:2607.07678) are not in what could be read of it.
"""


def span(found: Mapping[str, Any] | None, digits: int = 3) -> str:
    """A value with its interval, or with why it has none."""
    if found is None or found["value"] is None:
        return "–" if found is None else f"– [{found['kind']}]"
    value = f"{found['value']:.{digits}g}"
    if found["low"] is None:
        return f"{value} [{found['kind']}]"
    return f"{value} [{found['low']:.{digits}g}–{found['high']:.{digits}g}]"


def in_order(lens: Mapping[str, Any], by_label: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What there is per text, in the order in which the texts were given (stored keys are in that of the alphabet)."""
    return [(one["label"], by_label[one["label"]]) for one in lens["domains"] if one["label"] in by_label]


def domains(lens: Mapping[str, Any], table: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """A table's texts by label, in order."""
    return in_order(lens, table["domains"])


def _spectrum(record: Record) -> list[Table]:
    lens, model = record["lens"], record["model"]
    window, title = model["trained_length"], f"{model['id']} · frequency energy"
    found = [_summary(record, title), _variants(record, title), _stability(record, title), _layers(record, title)]
    if lens["scores"]:
        found.append(_scores(record))
    own = lens["tables"][0]
    columns = ["pair", "wavelength", f"turns in {window}", *(f"% {label}" for label, _ in domains(lens, own))]
    columns += ["% random"] if lens["random"] else []
    rows = []
    for pair, frequency in enumerate(own["inv_freq"]):
        wave = 2 * math.pi / frequency if frequency else math.inf
        row = [str(pair), f"{wave:,.1f}", f"{window / wave:.3g}"]
        for _, domain in domains(lens, own):
            ends = {end: domain[end][pair] and 100 * domain[end][pair] for end in ("low", "high")}
            row.append(span({"value": 100 * domain["shares"][pair], "kind": "n too small", **ends}))
        row += [f"{100 * lens['random']['shares'][pair]:.3g}"] if lens["random"] else []
        rows.append(tuple(row))
    even = f"even shares would be {100 / len(rows):.3g} % each; variant {DEFAULT}"
    return [*found, Table(f"{title}: share of each pair, {own['label']}", tuple(columns), tuple(rows), None, (even,))]


def _summary(record: Record, title: str) -> Table:
    lens, rows = record["lens"], []
    for table in lens["tables"]:
        reach = table["positive_reach"]
        for label, domain in domains(lens, table):
            of = domain["variants"][DEFAULT]
            rows.append((table["label"], label, span(of["theta_eff"]), f"{2 * math.pi / of['theta_eff']['value']:,.0f}",
                         span(of["concentration"]), f"{100 * of['unevenness']:.0f} %",
                         "beyond 2^20" if reach is None else f"{reach:,}"))  # fmt: skip
    if lens["random"]:
        of = lens["random"]["variants"][DEFAULT]
        rows.append((f"random weights ×{lens['random']['inits']}", lens["random"]["domain"], span(of["theta_eff"]),
                     f"{2 * math.pi / of['theta_eff']['value']:,.0f}", span(of["concentration"]),
                     f"{100 * of['unevenness']:.0f} %", ""))  # fmt: skip
    columns = ("method", "text", "θ_eff (rad/token)", "wavelength of θ_eff", "concentration", "most uneven pair",
               "Σcos(mθ) ≥ 0 up to")  # fmt: skip
    notes = (
        f"n = {lens['n']} prompts of {lens['length']} tokens per text, layers with RoPE: {len(lens['layers'])}",
        "θ_eff: geometric mean of the frequencies by share; concentration: 0 even, 1 all in one pair; most uneven: the "
        "largest deviation of a pair's share from an even one",
    )
    return Table(title, columns, tuple(rows), None, notes)


def _variants(record: Record, title: str) -> Table:
    label, domain = domains(record["lens"], record["lens"]["tables"][0])[0]
    random = record["lens"]["random"]
    columns = ["variant", "θ_eff (rad/token)", "concentration", "most uneven pair"]
    columns += ["random: concentration", "random: most uneven"] if random else []
    rows = []
    for variant in VARIANTS:
        of = domain["variants"][variant]
        row = [variant, span(of["theta_eff"]), span(of["concentration"]), f"{100 * of['unevenness']:.0f} %"]
        if random:
            bare = random["variants"][variant]
            row += [span(bare["concentration"]), f"{100 * bare['unevenness']:.0f} %"]
        rows.append(tuple(row))
    note = (
        "PAIRS/MEAN/POOL: what the definition leaves open (causal or all pairs of tokens; mean of A² or square of its "
        "mean; heads alike or by their energy)"
    )
    return Table(f"{title}: variants of the measure on {label}", tuple(columns), tuple(rows), None, (note,))


def _stability(record: Record, title: str) -> Table:
    found = record["lens"]["stability"]
    rows = [(f"prompts of {label}", span(of), "") for label, of in in_order(record["lens"], found["within"])]
    rows += [(f"{one['a']} and {one['b']}", f"{one['similarity']:.3g}", f"{one['theta_eff_ratio']:.3g}")
             for one in found["between"]]  # fmt: skip
    note = "similarity: what two spectra have in common (1: all); of prompts: each with the mean of its domain's others"
    return Table(f"{title}: stability", ("between", "similarity", "ratio of θ_eff"), tuple(rows), None, (note,))


def _layers(record: Record, title: str) -> Table:
    """What the heads of each layer do, in the unmodified model on the first text."""
    label, domain = domains(record["lens"], record["lens"]["tables"][0])[0]
    rows = []
    pairs = zip(domain["heads_theta_eff"], domain["heads_concentration"], strict=True)
    for layer, (theta, even) in zip(record["lens"]["layers"], pairs, strict=True):
        mean = math.exp(sum(map(math.log, theta)) / len(theta))
        rows.append((str(layer), f"{mean:.3g}", f"{min(theta):.3g}–{max(theta):.3g}", f"{sum(even) / len(even):.3g}",
                     f"{min(even):.2g}–{max(even):.2g}"))  # fmt: skip
    columns = ("layer", "θ_eff of heads", "lowest–highest", "concentration of heads", "lowest–highest")
    note = "of each head alone; its mean over heads (θ_eff: geometric)"
    return Table(f"{title}: heads by layer on {label}", columns, tuple(rows), None, (note,))


def _scores(record: Record) -> Table:
    scores, rows = record["lens"]["scores"], []
    for method in scores["methods"]:
        for band, of in method["bands"].items():
            for part in ("inside", "beyond"):
                one = of[part]
                if one is not None:
                    quantiles = "–".join(f"{one[q]:.2f}" for q in ("q5", "q50", "q95"))
                    rows.append((method["label"], band, part, f"{one['mean']:+.3f}", f"{one['deviation']:.3f}",
                                 quantiles, span(one["moved"])))  # fmt: skip
    pairs = ", ".join(f"{band}: pairs {own[0]}–{own[-1]}" for band, own in scores["pairs"].items())
    notes = (
        f"n = {scores['n']} prompts of {scores['length']} tokens of {scores['domain']}, window {scores['window']}",
        f"{pairs}; the bands end at 32 and 1 turns in the window",
        "in standard deviations of each head's scores in the unmodified model within the window (mean 0, deviation 1 "
        "there); moved: Kolmogorov-Smirnov distance from those; inside, beyond: distances below and above the window",
        "an attention factor f multiplies every score by f², so that much of the deviation is temperature: "
        + ", ".join(f"{one['label']} {one['attention_factor'] ** 2:.3g}" for one in record["lens"]["tables"]),
    )
    columns = ("method", "band", "distance", "mean", "deviation", "5–50–95 %", "moved")
    return Table(f"{record['model']['id']} · attention scores by band", columns, tuple(rows), None, notes)


def _dependence(record: Record) -> list[Table]:
    lens = record["lens"]
    title, rows = f"{lens['source']['label']} · dependence on distance", []
    for one in lens["granularities"]:
        w = one["width"]
        per = one["bytes_per_token"]
        in_bytes = "–" if w["value"] is None else f"{w['value'] * per:,.0f}"
        mi = [f"{one['mi'][_nearest(one['distances'], r)]:.2g}" for r in (1, 8, 64, 512)]
        rows.append((one["name"], str(one["classes"]), f"{100 * one['own_classes']:.0f} %", f"{per:.2f}",
                     f"{one['tokens']:,}", *mi, span(w), in_bytes, _half(one), _pi_over(w),
                     "yes" if w["open"] else "no"))  # fmt: skip
    share = lens["granularities"][0]["width"]["share"]
    columns = ("tokens", "classes", "own", "bytes/token", "n", "I(1)", "I(8)", "I(64)", "I(512)", "W (tokens)",
               "W (bytes)", "W, half the look", "π/W", "open")  # fmt: skip
    notes = (
        f"I(r): mutual information of tokens r apart, nats, less that of independent ones (at the measured distance "
        f"nearest to r; up to {lens['distance']} bytes); {lens['groups']} parts of the text",
        f"W: {100 * share:.0f} % of the excess up to the longest distance lies within it; open: there is still some at "
        "the longest, so that W would grow with a longer look; own: tokens that are a class of their own",
        "W, half the look: the same (tokens) from distances up to half the longest; where it is about half of W, the "
        "text has no width of its own up to there, and W and π/W say how far was looked",
        "intervals are over parts of the text; of periodic text (drills) nothing is seen between measured distances",
    )
    found = [Table(title, columns, tuple(rows), None, notes)]
    alike = tuple(
        (one["coarse"], one["fine"], f"{one['alpha']:.2f}", *(span(one.get(k)) for k in ("score", "shape", "error")),
         f"{one['dilation']:.2f}" if one["score"] else "–", str(one.get("points", 0)))
        for one in lens["self_similarity"]
    )  # fmt: skip
    if alike:
        about = (
            "score: R² of ln I(r) of the coarse tokens by the finer ones' ln I(α·r), α from bytes per token; 1 is "
            "self-similar; shape: the same with a free factor; error: rms of the log ratio; best α: the dilation with "
            "the highest score"
        )
        names = ("coarse", "fine", "α", "score", "shape", "error", "best α", "points")
        found.append(Table(f"{title}: self-similarity", names, alike, None, (about,)))
    if lens.get("beside"):
        one = lens["beside"]
        row = (record["model"]["id"], one["granularity"], span({"kind": "", **one["pi_over_width"]}),
               span(one["theta_eff"]), "–" if one["ratio"] is None else f"{one['ratio']:.3g}")  # fmt: skip
        heads = ("model", "tokens", "π/W", "θ_eff on this text", "θ_eff ÷ (π/W)")
        note = "theory: θ* = π/W for one dependency width; natural text mixes scales, so no equality is predicted"
        found.append(Table(f"{title}: beside the model", heads, (row,), None, (note,)))
    return found


def _half(one: Mapping[str, Any]) -> str:
    w = one["width"]
    half = width_within(one["distances"], one["mi"], w["longest"] // 2, w["share"]) if w["value"] else None
    return "–" if half is None else f"{half:,.3g}"


def _pi_over(w: Mapping[str, Any]) -> str:
    over = {new: w[old] and math.pi / w[old] for new, old in (("value", "value"), ("low", "high"), ("high", "low"))}
    return span({"kind": w["kind"], **over})


def _nearest(distances: Iterable[int], wanted: int) -> int:
    every = list(distances)
    return min(range(len(every)), key=lambda place: abs(math.log(every[place] / wanted)))
