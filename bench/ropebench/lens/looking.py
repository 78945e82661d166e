"""A look at a model: its spectrum over domains and methods, beside random weights, and its scores by band.

Everything comes out as plain JSON values, for a record; nothing is written or printed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from ropebench.apply import applied
from ropebench.cell import Cell
from ropebench.geometry import Array
from ropebench.lens.bands import bands_of, distance_between, histograms, moments, summary
from ropebench.lens.record import ends
from ropebench.lens.spectrum import (
    DEFAULT,
    VARIANTS,
    concentration,
    effective_frequency,
    energies,
    head_shares,
    mean_energies,
    positive_reach,
    shares,
    similarity,
    unevenness,
)  # fmt: skip
from ropebench.lens.watching import pair_channels
from ropebench.record import Json
from ropebench.stats import exponential, interval

Prompts = Sequence[tuple[int, ...]]
Say = Callable[[str], None]


def spectra(model: Any, cells: Sequence[Cell], domains: Mapping[str, Prompts], say: Say) -> Json:
    """Spectra of every domain under the table of every cell; the first cell is the unmodified model. Layers are those
    with RoPE, by index."""
    channels = pair_channels(model)
    tables, kept = [], {}
    for place, cell in enumerate(cells):
        table = cell.method.frequencies(cell.geometry, cell.factor or 1.0, cell.length)
        found: dict[str, Json] = {}
        with applied(model, table) as live:
            for label, rows in domains.items():
                say(f"{cell.method_label} on {label}: {len(rows)} prompts of {len(rows[0])} tokens")
                every = [energies(model, ids, channels) for ids in rows]
                found[label] = _domain(every, table.inv_freq)
                if not place:
                    kept[label] = every
        tables.append(
            {
                "label": cell.method_label,
                "name": cell.method.name,
                "factor": cell.factor,
                "inv_freq": [float(f) for f in live.inv_freq],
                "attention_factor": live.attention_factor,
                "positive_reach": positive_reach(table.inv_freq),
                "domains": found,
            }
        )
    inv_freq = np.array(tables[0]["inv_freq"])
    return {"layers": sorted(channels), "tables": tables, "stability": _stability(kept, inv_freq)}


def _domain(every: Sequence[Mapping[str, Array]], inv_freq: Array) -> Json:
    """One domain under one table: shares with intervals over prompts, each variant's summary, and each head's."""
    mean = mean_energies(every)
    per_prompt = np.stack([shares(one) for one in every])
    heads = head_shares(mean[DEFAULT.rpartition("/")[0]])
    variants = {}
    for variant in VARIANTS:
        own = [shares(one, variant) for one in every]
        whole = shares(mean, variant)
        logs = interval([float(np.log(effective_frequency(one, inv_freq))) for one in own], share=False)
        variants[variant] = {
            "theta_eff": ends(exponential(logs)),
            "concentration": ends(interval([concentration(one) for one in own], share=False)),
            "shares": [float(p) for p in whole],
            "unevenness": unevenness(whole),
        }
    pairs = [interval([float(p) for p in column], share=False) for column in per_prompt.T]
    return {
        "n": len(every),
        "shares": [found.value for found in pairs],
        "low": [found.low for found in pairs],
        "high": [found.high for found in pairs],
        "variants": variants,
        "heads_theta_eff": [[effective_frequency(head, inv_freq) for head in layer] for layer in heads],
        "heads_concentration": [[concentration(head) for head in layer] for layer in heads],
    }


def _stability(kept: Mapping[str, Sequence[Mapping[str, Array]]], inv_freq: Array) -> Json:
    """How alike the unmodified model's spectra are. Within a domain: each prompt's with that of the domain's others;
    between domains: the mean spectra, and the ratio of their effective frequencies."""
    within, means = {}, {}
    for label, every in kept.items():
        own = np.stack([shares(one) for one in every])
        means[label] = own.mean(0)
        if len(own) > 1:
            others = (own.sum(0) - own) / (len(own) - 1)
            alike = [similarity(one, rest) for one, rest in zip(own, others, strict=True)]
            within[label] = ends(interval(alike, share=True))
    between = [
        {
            "a": a,
            "b": b,
            "similarity": similarity(means[a], means[b]),
            "theta_eff_ratio": effective_frequency(means[b], inv_freq) / effective_frequency(means[a], inv_freq),
        }
        for a, b in combinations(means, 2)
    ]
    return {"within": within, "between": between}


def random_weights(config: Any, attention: str, rows: Prompts, inits: int, seed: int, device: str, say: Say) -> Json:
    """Spectra of the same architecture as transformers initialises it, `inits` times: what training starts from."""
    import torch
    from transformers import AutoModelForCausalLM

    loader: Any = AutoModelForCausalLM
    every, inv_freq, channels = [], np.empty(0), None
    for place in range(inits):
        say(f"random weights {place + 1} of {inits}: {len(rows)} prompts")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed + place)
            model = loader.from_config(config, dtype=torch.float32, attn_implementation=attention)
        model = model.to(device).eval()
        if channels is None:
            from ropebench.apply import live

            channels, inv_freq = pair_channels(model), live(model).inv_freq
        every.append(mean_energies([energies(model, ids, channels) for ids in rows]))
        del model
    variants = {}
    for variant in VARIANTS:
        own = np.stack([shares(one, variant) for one in every])
        logs = interval([float(np.log(effective_frequency(one, inv_freq))) for one in own], share=False)
        variants[variant] = {
            "theta_eff": ends(exponential(logs)),
            "concentration": ends(interval([concentration(one) for one in own], share=False)),
            "shares": [float(p) for p in own.mean(0)],
            "unevenness": unevenness(own.mean(0)),
            "unevenness_each": [unevenness(one) for one in own],
        }
    return {"inits": inits, "n": len(rows), "shares": variants[DEFAULT]["shares"], "variants": variants}


def band_scores(model: Any, cells: Sequence[Cell], rows: Prompts, say: Say) -> Json:
    """Scores by band under each cell's table, standardised by the unmodified model's within its trained window."""
    geometry = cells[0].geometry
    bands, channels, window = bands_of(geometry), pair_channels(model), geometry.trained_length
    inside = [ids[:window] for ids in rows]

    def table(cell: Cell) -> Any:
        return applied(model, cell.method.frequencies(cell.geometry, cell.factor or 1.0, cell.length))

    say(f"scores by band: {len(rows)} prompts of {len(rows[0])} tokens under {len(cells)} tables")
    with table(cells[0]):
        standard = moments(model, inside, channels, bands)
        within = [histograms(model, ids, channels, bands, standard) for ids in inside]
    reference = {band: sum(one[band].sum(0) for one in within) for band in bands}
    methods = []
    for cell in cells:
        with table(cell):
            every = [histograms(model, ids, channels, bands, standard) for ids in rows]
        methods.append({"label": cell.method_label, "name": cell.method.name, "factor": cell.factor,
                        "bands": {band: _moved([one[band] for one in every], reference[band], window)
                                  for band in bands}})  # fmt: skip
    return {
        "n": len(rows),
        "length": len(rows[0]),
        "window": window,
        "pairs": {band: [int(pair) for pair in own] for band, own in bands.items()},
        "methods": methods,
    }


def _moved(every: Sequence[Array], reference: Array, window: int) -> Json:
    """A band's scores inside and beyond the window (by octave of distance; the octave that the window cuts is beyond
    where it begins at the window or later), and how far they are from the reference."""
    total = np.sum(every, axis=0)
    octaves = len(total)
    first = min(octaves, max(1, (window - 1).bit_length()))
    found: Json = {"by_octave": [summary(row) if row.sum() else None for row in total]}
    for name, part in (("inside", slice(0, first)), ("beyond", slice(first, octaves))):
        counts = [one[part].sum(0) for one in every]
        if not sum(counts).sum():
            found[name] = None
            continue
        moved = interval([distance_between(one, reference) for one in counts if one.sum()], share=True)
        found[name] = {**summary(sum(counts)), "moved": ends(moved)}
    return found
