"""`export`: a method as settings of a program that serves models."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from ropebench.cli.output import folder_named, quietly, say
from ropebench.errors import UsageError, unknown


def export(options: argparse.Namespace, words: list[str]) -> int:
    """Print, or write to --out, what makes an engine run a method."""
    from ropebench import export as exports
    from ropebench.model import card, find
    from ropebench.plan import start_of
    from ropebench.registry import Registry
    from ropebench.sweep import BASES, length_of

    if options.to not in exports.ENGINES:
        raise unknown("engine", options.to, exports.ENGINES, "--to takes one of these")
    if options.base not in BASES:
        raise unknown("base", options.base, BASES)
    target = length_of(options.target)
    trained = length_of(options.trained_length) if options.trained_length else None
    _check_files(options)
    quietly()
    method, _ = Registry.load(options.plugins).build("method", options.method)
    spec = find(options.model, options.models, options.revision)
    model = card(spec, trained, options.offline, options.trust_remote_code)
    rotation = exports.rotation_of(model, method, start_of(model, options.base), target)
    if options.to == "hf":
        found = _hf(options, rotation)
    elif options.to == "llama.cpp":
        found = _llama_cpp(options, rotation)
    else:
        found = _served(options, rotation)
    about = {
        "engine": options.to, "model": model.id, "method": rotation.label, "target": target,
        "trained_length": rotation.trained, "attention_factor": rotation.long.attention_factor,
    }  # fmt: skip
    if options.json:
        print(json.dumps({**about, **found}, ensure_ascii=False))
        return 0
    if found["print"]:
        print(found["print"])
    head = f"{rotation.label} on {model.id} for {options.to}: attention factor {rotation.long.attention_factor:.6g}"
    say("".join(f"{line}\n" for line in (head, *(f"  {note}" for note in found["notes"]), f"  {found['check']}")))
    return 0


def _check_files(options: argparse.Namespace) -> None:
    """Raises UsageError for flags that do not belong to the engine, and for an output that is there already."""
    llama = options.to == "llama.cpp"
    if llama and not (options.gguf and options.out):
        raise UsageError("--to llama.cpp writes into a copy of a GGUF file: give --gguf IN and --out OUT")
    if options.gguf and not llama:
        raise UsageError(f"--gguf belongs to --to llama.cpp, not to --to {options.to}")
    if options.patch and options.to != "hf":
        raise UsageError(f"--patch belongs to --to hf, not to --to {options.to}")
    if llama and not os.path.isfile(options.gguf):
        raise UsageError(f"--gguf {options.gguf!r}: no such file; give the GGUF file that the model was converted to")
    if options.out:
        out = _target_file(options)
        if llama and out.exists() and out.samefile(options.gguf):
            raise UsageError("--out is the file that --gguf names; give another, the copy is made beside it")
        if out.exists() and not options.force:
            raise UsageError(f"--out {str(out)!r} is there already; give another name, or --force to replace it")
        if out.is_dir():
            raise UsageError(f"--out {str(out)!r} is a folder; give the name of a file")


def _target_file(options: argparse.Namespace) -> Path:
    out = Path(options.out)
    return out / "config.json" if options.to == "hf" and out.suffix != ".json" else out


def _hf(options: argparse.Namespace, rotation: Any) -> dict[str, Any]:
    from ropebench.export import hf

    changes = hf.patch(rotation)
    whole = hf.patched(hf.raw_config(rotation), changes)
    checked = hf.check(rotation, whole)
    content = changes if options.patch or not options.out else whole
    return {"changes": changes, **_written(options, content), "notes": list(hf.NOTES), "check": checked}


def _served(options: argparse.Namespace, rotation: Any) -> dict[str, Any]:
    from ropebench.export import engines

    engine = engines.BY_NAME[options.to]
    changes = engines.overrides(engine, rotation)
    checked = engines.check(engine, rotation, changes)
    command = engines.command(engine, rotation, changes)
    found = _written(options, changes)
    notes = [f"{engine.name} {engine.release}, {engine.source}:", *engine.notes]
    return {**found, "changes": changes, "command": command, "print": command, "notes": notes, "check": checked}


def _llama_cpp(options: argparse.Namespace, rotation: Any) -> dict[str, Any]:
    from ropebench.export import llama_cpp

    out = _target_file(options)
    folder_named(str(out.parent))
    done = llama_cpp.write(rotation, Path(options.gguf), out)
    checked = "not run in llama.cpp here; `make llama-cpp-check` compares perplexities on a small model"
    return {"written": str(out), "print": "", "notes": [f"wrote {out}: {done}", *llama_cpp.NOTES], "check": checked}


def _written(options: argparse.Namespace, content: dict[str, Any]) -> dict[str, Any]:
    """The content as text to print, or as a file where --out names one."""
    text = json.dumps(content, ensure_ascii=False, indent=2)
    if not options.out:
        return {"print": text}
    out = _target_file(options)
    folder_named(str(out.parent))
    try:
        out.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {str(out)!r} cannot be written: {error.strerror}") from None
    say(f"wrote {out}\n")
    return {"print": "", "written": str(out)}
