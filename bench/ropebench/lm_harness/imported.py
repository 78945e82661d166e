"""lm-eval's own result files as records: `results_*.json`, with the `samples_*.jsonl` beside it.

They come in as what they are. The method is what lm-eval loaded (`native`, or what `--model ropebench` was told), the
scorer `lm_eval`, label and provenance say imported, and the file's hash is in the cell: such a number is never the
same cell as one measured here, nor in one table with it. Metrics are those that are a mean over lm-eval's samples;
another aggregation is left out and said. Nothing here imports lm-eval.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from ropebench.errors import UsageError
from ropebench.record import SCHEMA, Json, digest, summary, without_secrets

SHARES = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match")  # 0 or 1 per sample
_LOADING = ("pretrained", "revision", "dtype", "device", "trust_remote_code", "parallelize", "batch_size", "max_length",
            "method", "factor", "tokenizer")  # fmt: skip


@dataclass
class Imported:
    """What a results file yields: records with their sample rows, and what was left out, in words."""

    run_id: str
    records: list[Json] = field(default_factory=list)
    samples: list[Json] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def files_in(path: str | Path) -> list[Path]:
    """The results files that a path means: itself, or those in the folder. Raises UsageError where there is none."""
    path = Path(path)
    found = [path] if os.path.isfile(path) else sorted(path.rglob("results_*.json")) if os.path.isdir(path) else []
    if not found:
        raise UsageError(f"{path.name!r}: no lm-eval results file (results_*.json, as lm-eval's --output_path writes)")
    return found


def read(path: Path, *, model: str | None = None, trained_length: int | None = None, length: int | None = None,
         revision: str | None = None) -> Imported:  # fmt: skip
    """Records of one results file. `model`, `trained_length`, `length` and `revision` say what the file does not.

    Raises UsageError for a file that is not lm-eval's, and for what neither it nor the caller says.
    """
    try:
        return _read(path, path.read_bytes(), model, trained_length, length, revision)
    except OSError as error:
        raise UsageError(f"{path.name}: cannot be read: {error.strerror}") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:  # deep inside the file
        raise UsageError(f"{path.name}: not as lm-eval writes it ({type(error).__name__}: {error})") from None


def _read(
    path: Path, raw: bytes, model: str | None, trained_length: int | None, length: int | None, revision: str | None
) -> Imported:
    """A file's content as records."""
    try:
        whole = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path.name}: not JSON ({error})") from None
    if not isinstance(whole, dict) or not all(isinstance(whole.get(k), dict) for k in ("results", "config", "configs")):
        raise UsageError(f"{path.name}: not a results file of lm-eval (no results, config and configs in it)")
    config, arguments = whole["config"], _arguments(whole["config"].get("model_args"))
    given = model or _last_part(str(arguments.get("pretrained") or whole.get("model_name") or ""))
    if not given:
        raise UsageError(f"{path.name}: does not say which model was measured; give --model NAME")
    if trained_length is None:
        raise UsageError(f"{path.name}: lm-eval does not note the window that a model was trained with; give "
                         "--trained-length TOKENS")  # fmt: skip
    length = length or _whole(whole.get("max_length")) or _whole(arguments.get("max_length"))
    hashed = sha256(raw).hexdigest()
    found = Imported(f"lm_eval-{hashed[:16]}")
    about = {"tool": "lm_eval", "version": whole.get("lm_eval_version"), "file": path.name, "sha256": hashed}
    for task in sorted(whole["configs"]):
        rows = _rows(path, task)
        for at, keys in _by_length(whole["results"].get(task) or {}).items():
            size = at or length
            if size is None:
                raise UsageError(f"{path.name}: does not say how long the inputs could be; give --length TOKENS")
            scores, left = _scores(whole, task, keys, rows, at)
            found.left_out += left
            if scores:
                _add(found, whole, task, size, scores, rows, about, given, arguments, config, trained_length, revision)
    if not found.records:
        raise UsageError(f"{path.name}: no metric in it is a mean over samples; nothing was imported")
    return found


def _arguments(given: Any) -> dict[str, Any]:
    """lm-eval's model_args, a mapping or `a=b,c=d`."""
    if isinstance(given, Mapping):
        return dict(given)
    return dict(part.partition("=")[::2] for part in str(given or "").split(",") if "=" in part)


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def _last_part(word: str) -> str:
    """A path reduced to its last part; a hub id (owner/name) stays whole."""
    return word if re.fullmatch(r"[\w.-]+/[\w.-]+", word) and not word.startswith(".") else Path(word).name


def _rows(path: Path, task: str) -> list[Json] | None:
    """The task's sample rows beside a results file (of the same time), or None where they were not logged."""
    if not re.fullmatch(r"[^/\\\x00]+", task):  # no other folder's file
        return None
    file = path.with_name(f"samples_{task}_{path.stem.removeprefix('results_')}.jsonl")
    if not os.path.isfile(file):
        return None
    try:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file.name}: not JSON lines ({error})") from None
    if not all(isinstance(row, dict) and "doc_id" in row for row in rows):
        raise UsageError(f"{file.name}: not sample rows of lm-eval (no doc_id)")
    return rows


def _by_length(results: Mapping[str, Any]) -> dict[int | None, list[str]]:
    """A task's metric keys (`acc,none`) by length: its RULER names metrics by length, and writes −1 for none."""
    found: dict[int | None, list[str]] = {}
    for key, value in results.items():
        name, comma, _ = key.partition(",")
        if not comma or name.endswith("_stderr") or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if name.isdigit() and value < 0:
            continue
        found.setdefault(int(name) if name.isdigit() else None, []).append(key)
    return found


Scores = dict[str, tuple[Json, dict[int, float]]]  # metric → (summary, value by document)


def _scores(
    whole: Json, task: str, keys: Sequence[str], rows: list[Json] | None, at: int | None
) -> tuple[Scores, list[str]]:
    """A task's metrics with their values per sample; and, in words, those that are no mean over the samples."""
    results = whole["results"][task]
    left: list[str] = []
    found: Scores = {}
    filters = {key.partition(",")[2] for key in keys}
    n = _whole((whole.get("n-samples", {}).get(task) or {}).get("effective")) or 0
    for key in sorted(keys):
        name, _, chosen = key.partition(",")
        label = ("score" if at is not None else name) + (f",{chosen}" if len(filters) > 1 else "")
        if not _is_number(results[key]) or (name in SHARES and not 0 <= results[key] <= 1):
            left.append(f"{task}: {key} is no number of its kind; left out")
            continue
        if rows is None:
            stderr = results.get(f"{name}_stderr,{chosen}")
            known = {"value": results[key], "stderr": stderr if _is_number(stderr) else None, "n": n}
            found[label] = (known, {})
            continue
        values = {
            row["doc_id"]: float(row[name])
            for row in rows
            if row.get("filter", "none") == chosen and _is_number(row.get(name)) and not
            (at is not None and row[name] < 0)
        }  # fmt: skip
        mean = summary([values[index] for index in sorted(values)])
        if mean["value"] is None or not math.isclose(mean["value"], results[key], rel_tol=1e-6, abs_tol=1e-9):
            left.append(f"{task}: {key} is not the mean of its samples; left out")
            continue
        found[label] = (mean, values)
    return found, left


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _add(
    found: Imported, whole: Json, task: str, length: int, scores: Scores, rows: list[Json] | None, about: Json,
    model: str, arguments: Mapping[str, Any], config: Json, trained_length: int, revision: str | None,
) -> None:  # fmt: skip
    higher = whole.get("higher_is_better", {}).get(task) or {}
    shots = (whole.get("n-shot") or {}).get(task)
    record: Json = {
        "schema": SCHEMA,
        "kind": "run",
        "run_id": found.run_id,
        "series": found.run_id,
        "created": f"{datetime.fromtimestamp(float(whole.get('date') or 0), UTC):%Y-%m-%dT%H:%M:%SZ}",
        "model": {
            "id": model,
            "source": "lm_eval",
            "revision": revision or whole.get("model_sha") or whole.get("model_revision"),
            "dtype": str(whole["model_dtype"]).removeprefix("torch.") if whole.get("model_dtype") else None,
            "attention": None,
            "quantization": None,
            "rotary_dim": None,
            "theta": None,
            "trained_length": trained_length,
            "base": "native",
            "sliding_window": None,
            "remote_code": None,
        },
        "method": _method(arguments, str(config.get("model"))),
        "task": {
            "name": f"lm_eval/{task}",
            "version": (whole.get("versions") or {}).get(task),
            "params": {"num_fewshot": shots, "task_hash": (whole.get("task_hashes") or {}).get(task)},
            "code": None,
            "label": f"lm_eval/{task}" + (f":{shots}-shot" if shots else "") + " (imported)",
            "scorer": "lm_eval",
            "gated": False,
            "corpus": None,
            "metrics": [_metric(name, higher) for name in scores],
        },
        "condition": {
            "length": length,
            "seed": config.get("fewshot_seed"),
            "bos": None,
            "bos_used": None,
            "first_id": None,
            "chat_template": "on" if whole.get("chat_template") else "off",
            "n_skipped": 0,
            "tokens_min": None,
            "tokens_mean": None,
            "tokens_max": None,
        },
        "outcome": {"status": "ok", "error": None, "metrics": {name: one for name, (one, _) in scores.items()},
                    "primary": next(iter(scores))},
        "cost": dict.fromkeys(("seconds", "tokens", "tokens_per_second", "peak_bytes", "runs", "partial")),
        "provenance": {
            "commit": None,
            "dirty": None,
            "argv": [],
            "versions": {"lm_eval": whole.get("lm_eval_version"), "transformers": whole.get("transformers_version")},
            "platform": None,
            "device": config.get("device"),
            "imported": about,
        },
    }  # fmt: skip
    own = _samples(record, scores, rows or [])
    count = len(own) if rows is not None else max(one["n"] for one, _ in scores.values())
    record["condition"] |= {"n_requested": count, "n_scored": count}
    record["task"]["samples_sha256"] = digest([row["prompt_sha256"] for row in own], 64)
    from ropebench.validate import identity_of

    record["cell_id"] = digest(identity_of(record))
    record["record_id"] = digest([record["cell_id"], found.run_id])
    found.records.append(record)
    found.samples += [row | {"cell_id": record["cell_id"]} for row in own]


def _method(arguments: Mapping[str, Any], kind: str) -> Json:
    """What lm-eval loaded: the checkpoint as shipped, unless `--model ropebench` was told a method."""
    ours = kind == "ropebench" and arguments.get("method")
    factor = arguments.get("factor") if ours else None
    more = {k: _harmless(k, v) for k, v in sorted(arguments.items()) if k not in _LOADING}
    name = str(arguments["method"]).split(":")[0] if ours else "native"
    label = (str(arguments["method"]) if ours else name) + (f"×{float(factor):g}" if factor else "")
    label += "".join(f":{key}={_last_part(str(value))}" for key, value in more.items())
    return {
        "name": name, "version": 0, "params": more, "set_params": more, "code": None,
        "factor": float(factor) if factor else None, "factor_rule": "factor" if factor else "none",
        "label": f"{label} (imported)", "length_dependent": False, "inv_freq": None, "attention_factor": None,
    }  # fmt: skip


def _harmless(key: str, value: Any) -> Any:
    """An argument without what only its owner should know."""
    if re.search("token|secret|passw|key|credential", key, re.IGNORECASE) and isinstance(value, str):
        return "…"
    return without_secrets(value) if isinstance(value, str) else value


def _metric(name: str, higher: Mapping[str, Any]) -> Json:
    plain = name.split(",")[0]
    share = plain in SHARES or plain == "score"
    return {
        "name": name, "direction": "higher" if higher.get(plain, True) else "lower", "low": 0.0 if share else None,
        "high": 1.0 if share else None, "chance": None, "unit": "", "derived": None,
    }  # fmt: skip


def _samples(record: Json, scores: Scores, rows: list[Json]) -> list[Json]:
    """Sample rows in the order of lm-eval's documents; `prompt_sha256` is lm-eval's hash of the prompt's text."""
    documents: dict[int, Json] = {}
    for row in rows:
        documents.setdefault(row["doc_id"], row)
    wanted = [key for key in sorted(documents) if any(key in values for _, values in scores.values())]
    return [
        {
            "schema": SCHEMA,
            "kind": "sample",
            "run_id": record["run_id"],
            "series": record["series"],
            "index": index,
            "prompt_sha256": documents[key].get("prompt_hash") or digest(documents[key].get("arguments"), 64),
            "tokens": None,
            "skip": None,
            "scores": {name: values[key] for name, (_, values) in scores.items() if key in values},
            "output": _text(documents[key].get("filtered_resps")),
            "targets": [str(documents[key].get("target"))],
            "meta": {"doc_id": key, "doc_sha256": documents[key].get("doc_hash")},
            "nll_bins": None,
            "cost": None,
        }
        for index, key in enumerate(wanted)
    ]


def _text(answers: Any) -> str | None:
    return answers[0] if isinstance(answers, list) and answers and isinstance(answers[0], str) else None
