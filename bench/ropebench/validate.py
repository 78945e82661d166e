"""Whether records are what they say they are: their layout, the identity of their cells, and every number in them
worked out again from the sample rows. Pure: nothing is read, written or measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ropebench.geometry import LONGEST
from ropebench.loading import QUANTIZATIONS
from ropebench.outcome import metrics_of
from ropebench.record import STATUSES, Json, digest

# Keys of a record by group, as `results/README.md` explains them; those of OPTIONAL may be absent, and read as null.
TOP = ("schema", "kind", "record_id", "cell_id", "run_id", "series", "created")
GROUPS: dict[str, tuple[str, ...]] = {
    "model": ("id", "source", "revision", "dtype", "attention", "quantization", "compiled", "device_map", "served",
              "rotary_dim", "theta", "trained_length", "base", "sliding_window", "remote_code"),
    "method": ("name", "version", "params", "set_params", "code", "factor", "factor_rule", "label", "length_dependent",
               "inv_freq", "attention_factor"),
    "task": ("name", "version", "params", "code", "label", "scorer", "gated", "corpus", "samples_sha256", "metrics"),
    "condition": ("length", "seed", "bos", "bos_used", "first_id", "chat_template", "n_requested", "n_scored",
                  "n_skipped", "tokens_min", "tokens_mean", "tokens_max"),
    "outcome": ("status", "error", "metrics", "primary"),
    "cost": ("seconds", "tokens", "tokens_per_second", "peak_bytes", "sizes", "estimate", "runs", "partial"),
    "provenance": ("commit", "dirty", "argv", "versions", "platform", "device", "hardware"),
}  # fmt: skip
OPTIONAL = {("task", "gated"), ("model", "sliding_window"), ("model", "remote_code"), ("model", "source"),
            ("model", "compiled"), ("model", "device_map"), ("model", "served"), ("cost", "sizes"),
            ("cost", "estimate"), ("cost", "runs"), ("cost", "partial"), ("condition", "first_id"),
            ("provenance", "hardware")}  # fmt: skip
# What is no string, number or null in a group.
PARTS: dict[tuple[str, str], type] = {
    ("method", "inv_freq"): list, ("method", "params"): dict, ("method", "set_params"): dict, ("task", "params"): dict,
    ("task", "corpus"): dict, ("task", "metrics"): list, ("outcome", "metrics"): dict, ("outcome", "error"): dict,
    ("cost", "estimate"): dict, ("cost", "sizes"): dict, ("provenance", "argv"): list, ("provenance", "versions"): dict,
    ("provenance", "hardware"): dict, ("model", "served"): dict,
}  # fmt: skip
ROWLESS = "sample rows are missing"
# What comes of a value that is of another kind than it should be, deep inside a record.
MALFORMED = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
_DERIVED_BEFORE = {"perplexity": ("exp", "nll"), "word_perplexity": ("exp", "nats_per_word")}
SAMPLE = ("schema", "kind", "cell_id", "run_id", "series", "index", "prompt_sha256", "tokens", "skip", "scores",
          "output", "targets", "meta", "nll_bins", "cost")  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """What is wrong, or (`fatal` false) what a reader should know, in plain words; `where` names the record."""

    where: str
    text: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


def problems(
    records: Sequence[Json], samples: Iterable[Json], naming: Callable[[Json], str] | None = None
) -> list[Problem]:
    """Everything that speaks against a set of records (upgraded to today's schema) with their sample rows. `naming`
    gives a record its name in `where`, by default `named`."""
    found: list[Problem] = []
    if not records:
        return [Problem("file", "no records in it")]
    rows: dict[tuple[Any, Any], dict[int, Json]] = {}
    for row in samples:
        rows.setdefault((row.get("cell_id"), str(row.get("series"))), {})[row["index"]] = row  # a later one counts
    seen: set[str] = set()
    for record in records:
        where = (naming or named)(record)
        try:
            layout = list(faults_of_layout(record))
            found += [Problem(where, text) for text in layout]
            if layout:
                continue
            if record["record_id"] in seen:
                found.append(Problem(where, f"record_id {record['record_id']} stands twice"))
            seen.add(record["record_id"])
            own = rows.get((record["cell_id"], str(record["series"])), {})
            wanted = record["condition"]["n_requested"]
            kept = [own[index] for index in sorted(own) if index < wanted]
            found += [*_identity(record, where), *_numbers(record, kept, where), *_provenance(record, where)]
        except MALFORMED as error:
            found.append(Problem(where, f"not as results/README.md describes ({type(error).__name__}: {error})"))
    cells = {record.get("cell_id") for record in records}
    strays = sorted({str(cell) for cell, _ in rows if cell not in cells})
    if strays:
        text = f"sample rows of cells without a record ({', '.join(strays[:3])}): a run that was cut off?"
        found.append(Problem("samples", text, fatal=False))
    return found


def named(record: Mapping[str, Any]) -> str:
    """A record for a reader: `smollm2-135m yarn×2 proofpile 4096 (cell 12ab…)`."""
    parts = [(record.get(group) or {}) for group in ("model", "method", "task", "condition")]
    if not all(isinstance(part, dict) for part in parts):
        return f"record {record.get('record_id')}"
    words = [part.get(key) for part, key in zip(parts, ("id", "label", "label", "length"), strict=True)]
    return f"{' '.join(str(word) for word in words)} (cell {str(record.get('cell_id'))[:8]})"


def faults_of_layout(record: Mapping[str, Any]) -> Iterable[str]:
    """What a record lacks, or has of another kind, that every reader relies on."""
    if record.get("kind") != "run":
        yield f"kind is {record.get('kind')!r}; only records of kind 'run' can be shown with others"
        return
    missing = [key for key in TOP if key not in record]
    for group, keys in GROUPS.items():
        part = record.get(group)
        if not isinstance(part, dict):
            missing.append(group)
            continue
        missing += [f"{group}.{key}" for key in keys if key not in part and (group, key) not in OPTIONAL]
    if missing:
        yield f"lacks {', '.join(missing)} (see results/README.md)"
        return
    condition, task = record["condition"], record["task"]
    counts = ("length", "n_requested", "n_scored", "n_skipped")
    odd = [f"condition.{key}" for key in counts if not _is_count(condition[key], 0)]
    odd += [] if _is_count(record["model"]["trained_length"], 1) else ["model.trained_length"]
    sliding = record["model"].get("sliding_window")
    odd += [] if sliding is None or _is_count(sliding, 1) else ["model.sliding_window"]
    odd += ["outcome.status"] if record["outcome"]["status"] not in STATUSES else []
    texts = (("model", "id"), ("method", "name"), ("method", "label"), ("task", "name"), ("task", "label"))
    odd += [f"{group}.{key}" for group, key in texts if not isinstance(record[group][key], str)]
    odd += [key for key in ("record_id", "cell_id", "run_id", "created") if not isinstance(record[key], str)]
    for group, keys in GROUPS.items():
        found = [(key, record[group].get(key)) for key in keys]
        odd += [f"{group}.{key}" for key, value in found
                if value is not None and not isinstance(value, PARTS.get((group, key), str | int | float))]  # fmt: skip
    whole = isinstance(task["metrics"], list) and task["metrics"] and all(
        isinstance(one, dict) and {"name", "direction"} <= one.keys() for one in task["metrics"]
    )  # fmt: skip
    odd += [] if whole else ["task.metrics"]
    metrics = record["outcome"]["metrics"]
    fine = isinstance(metrics, dict) and all(map(_is_summary, metrics.values()))
    odd += [] if fine else ["outcome.metrics"]
    if odd:
        yield f"{', '.join(odd)}: not what results/README.md describes"


def _is_count(value: Any, least: int) -> bool:
    return type(value) is int and least <= value <= LONGEST


def _is_summary(value: Any) -> bool:
    """Whether a metric is {value, stderr, n}, the first two numbers or null."""
    if not isinstance(value, dict) or type(value.get("n")) is not int or "value" not in value:
        return False
    return all(value.get(key) is None or type(value[key]) in (int, float) for key in ("value", "stderr"))


def identity_of(record: Mapping[str, Any]) -> Json | None:
    """The identity whose hash is `cell_id`, put together from the record; None where its frequencies are not known."""
    model, method, task, condition = (record[group] for group in ("model", "method", "task", "condition"))
    imported = record["provenance"].get("imported")
    if method["inv_freq"] is None and not imported:
        return None
    values = [f"{value:.6e}" for value in [*(method["inv_freq"] or ()), method["attention_factor"] or 1.0]]
    about = {key: model[key] for key in ("id", "revision", "trained_length", "dtype", "attention")}
    # The format that a checkpoint comes in is part of its revision; one made while loading is not.
    about["quantization"] = model["quantization"] if model["quantization"] in QUANTIZATIONS else None
    if model.get("compiled"):
        about["compiled"] = True
    identity = {
        "model": about,
        "method": {
            **{key: method[key] for key in ("name", "version", "params", "code", "factor")},
            "base": model["base"],
            "frequencies": None if imported else digest(values),
        },
        "task": {
            **{key: task[key] for key in ("name", "version", "params", "code", "scorer")},
            "corpus": (task["corpus"] or {}).get("identity"),
        },
        "length": condition["length"],
        "seed": condition["seed"],
        "bos": condition["bos"],
        "chat_template": condition["chat_template"] == "on",
    }
    return identity | ({"imported": imported} if imported else {})


def _identity(record: Json, where: str) -> Iterable[Problem]:
    identity = identity_of(record)
    if identity is None or (record["method"]["length_dependent"] and digest(identity) != record["cell_id"]):
        text = "its cell_id cannot be worked out from the record (no table stored, or one that depends on the length)"
        yield Problem(where, text, fatal=False)
    elif digest(identity) != record["cell_id"]:
        yield Problem(where, f"cell_id is {record['cell_id']}, and what the record describes has {digest(identity)}")


def _numbers(record: Json, rows: Sequence[Json], where: str) -> Iterable[Problem]:
    condition, task, outcome = record["condition"], record["task"], record["outcome"]
    if outcome["status"] != "ok":
        if not outcome["error"]:
            yield Problem(where, f"status {outcome['status']} without an error that says why")
        return
    scored = [row for row in rows if row["skip"] is None]
    if not rows and condition["n_scored"]:
        yield Problem(where, f"its {condition['n_scored']} {ROWLESS}: they belong beside it, in FILE.samples.jsonl")
        return
    have = (len(scored), len(rows) - len(scored))
    if have != (condition["n_scored"], condition["n_skipped"]):
        said = f"{condition['n_scored']} scored and {condition['n_skipped']} skipped"
        yield Problem(where, f"says {said}; its sample rows have {have[0]} and {have[1]}")
        return
    if digest([row["prompt_sha256"] for row in scored], 64) != task["samples_sha256"]:
        yield Problem(where, "samples_sha256 is not the hash of its rows' prompts")
    yield from (Problem(where, text) for text in _scores(task["metrics"], scored))
    plain = [SimpleNamespace(name=m["name"], derived=_derived(m)) for m in task["metrics"]]
    try:
        again = metrics_of(SimpleNamespace(metrics=plain), rows)
    except (KeyError, TypeError, ArithmeticError) as error:
        yield Problem(where, f"its metrics cannot be worked out from its rows ({type(error).__name__}: {error})")
        return
    for name in sorted({*again, *outcome["metrics"]}):
        if not _agree(again.get(name), outcome["metrics"].get(name)):
            yield Problem(where, f"{name} is recorded as {outcome['metrics'].get(name)}, and its rows give "
                                 f"{again.get(name)}")  # fmt: skip
    if outcome["primary"] not in outcome["metrics"]:
        yield Problem(where, f"its primary metric {outcome['primary']!r} is not among its metrics")


def _derived(metric: Json) -> tuple[str, str] | None:
    """How a metric comes of another; of records made before the key was there it is known by name."""
    found = metric.get("derived", _DERIVED_BEFORE.get(metric["name"]))
    return (found[0], found[1]) if found else None


def _scores(metrics: Sequence[Json], rows: Sequence[Json]) -> Iterable[str]:
    known = {metric["name"]: metric for metric in metrics if not _derived(metric)}
    for row in rows:
        for name, value in row["scores"].items():
            metric = known.get(name)
            if metric is None:
                yield f"sample {row['index']} scores {name!r}, which the task does not declare"
            elif not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
                yield f"sample {row['index']}: {name} is {value!r}, no number"
            elif not _within(value, metric.get("low"), metric.get("high")):
                yield f"sample {row['index']}: {name} is {value}, outside {metric.get('low')}–{metric.get('high')}"


def _within(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low - 1e-9) and (high is None or value <= high + 1e-9)


def _agree(one: Json | None, two: Json | None) -> bool:
    """Whether two summaries say the same number; sums on another machine may differ in the last digits."""
    if one is None or two is None:
        return one is two
    if one["n"] != two.get("n"):
        return False
    for key in ("value", "stderr"):
        a, b = one[key], two.get(key)
        if a is None or b is None:
            if a is not b:
                return False
        elif not math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12):
            return False
    return True


def _provenance(record: Json, where: str) -> Iterable[Problem]:
    made = record["provenance"]
    versions = made["versions"] if isinstance(made["versions"], dict) else {}
    wanted = ("lm_eval",) if made.get("imported") else ("ropebench", "python", "torch", "transformers")
    missing = [name for name in wanted if not versions.get(name)]
    if missing:
        yield Problem(where, f"does not tell the version of {', '.join(missing)}")
    if made.get("dirty"):
        yield Problem(where, "measured with uncommitted changes: nobody else can get that code", fatal=False)
    if not record["model"]["revision"]:
        yield Problem(where, "does not tell the revision of the weights", fatal=False)
    if any(word.startswith(("/", "~", "hf_")) or "=/" in word for word in map(str, made["argv"] or ())):
        yield Problem(where, "its command (provenance.argv) holds a whole path or a token: reduce it first")


def coverage(records: Sequence[Json], stored: Sequence[Json]) -> list[Problem]:
    """What new records lack to be compared with one another and with those that are there (`stored`)."""
    found: list[Problem] = []

    def setting(record: Json) -> tuple[Any, ...]:
        return (record["model"]["id"], record["task"]["label"], record["condition"]["seed"])

    everything = list({record["cell_id"]: record for record in [*records, *stored]}.values())
    for key in sorted({setting(record) for record in records}, key=str):
        where = f"{key[0]} {key[1]} seed {key[2]}"
        here = [record for record in everything if setting(record) == key]
        lengths: dict[str, set[int]] = {}
        for record in here:
            lengths.setdefault(record["method"]["label"], set()).add(record["condition"]["length"])
        every = sorted(set().union(*lengths.values()))
        added = {record["method"]["label"] for record in records if setting(record) == key}
        if not any(record["method"]["name"] in ("none", "native") for record in here):
            found.append(Problem(where, "no unmodified model (none or native) to compare with", fatal=False))
        for label in sorted(added):
            lacking = [length for length in every if length not in lengths[label]]
            if lacking:
                text = f"{label} has no result at {', '.join(map(str, lacking))}, where other methods have one"
                found.append(Problem(where, text, fatal=False))
        for length in every:
            at = [r for r in here if r["condition"]["length"] == length and r["outcome"]["status"] == "ok"]
            if len({r["task"]["samples_sha256"] for r in at}) > 1:
                text = f"at {length} tokens not all methods saw the same samples: those are not compared"
                found.append(Problem(where, text, fatal=False))
    return found
