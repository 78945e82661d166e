"""InfiniteBench's prompts, to the byte: the literals against published hashes, the filled prompts against what the
original's own create_prompt made of the fixture rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from ropebench.corpus import NOISE
from ropebench.errors import UsageError
from ropebench.infinitebench import SUBSETS
from ropebench.infinitebench.prompts import GPT4, NEW_TOKENS, YARN_MISTRAL, Prompts, filled
from ropebench.infinitebench.rows import Row, rows_of
from ropebench.registry import Registry

DATA = Path(__file__).with_name("data") / "infinitebench"

# First 16 hex digits of the SHA-256, and length in characters, as listed for OpenBMB/InfiniteBench @ 88b3daa.
KNOWN = {
    "passkey": ("32a0f730f8746b1a", 177),
    "number_string": ("f519b51c90c40022", 177),
    "kv_retrieval": ("afa97419dd69cd74", 98),
    "longbook_sum_eng": ("897e95259c5b906a", 46),
    "longbook_qa_eng": ("6f24f4abaf415845", 111),
    "longbook_choice_eng": ("fddf5d8b4293a275", 164),
    "longdialogue_qa_eng": ("0483f9f01c709be7", 222),
    "longbook_qa_chn": ("121d4332c1cc5ee0", 43),
    "code_debug": ("e485a37d7c9c193f", 214),
    "code_run": ("8cfbec4288592e77", 150),
    "math_calc": ("ebf0b348e08e938f", 178),
    "math_find": ("df2334891e94023e", 28),
}

# No hash of this set is published. These are of src/prompt.py as stored at commit 753b69f; lm-eval's port is a second
# copy of all but math_calc, and is compared below.
GPT4_STORED = {
    "passkey": ("a1d265268f61d448", 168),
    "number_string": ("7f84f8637ed441f6", 150),
    "kv_retrieval": ("afa97419dd69cd74", 98),
    "longbook_sum_eng": ("73463436d5d11a9a", 40),
    "longbook_qa_eng": ("3d0b2296b8712aaa", 93),
    "longbook_choice_eng": ("7df117e8c610080b", 259),
    "longdialogue_qa_eng": ("f6dadd7709f11572", 362),
    "longbook_qa_chn": ("751d02a1547551de", 50),
    "code_debug": ("94ffaeb0375fe01b", 638),
    "code_run": ("e566fbaa9fa7dbcb", 226),
    "math_calc": ("35f11b1c997f8699", 76),
    "math_find": ("df2334891e94023e", 28),
}

# SHA-256 (16 hex digits) of all prompts of a fixture file, joined by NUL, as create_prompt of the original made them.
FILLED = {
    ("passkey", "yarn_mistral"): "d8574025e8f2171b",
    ("passkey", "gpt4"): "e8a7e2dac6fcd241",
    ("number_string", "yarn_mistral"): "1145863b29f6f574",
    ("number_string", "gpt4"): "89ac5d245558befc",
    ("kv_retrieval", "yarn_mistral"): "d3f2960e7ad72d8b",
    ("kv_retrieval", "gpt4"): "d3f2960e7ad72d8b",
    ("longbook_sum_eng", "yarn_mistral"): "f1a8a17a4ed6745a",
    ("longbook_sum_eng", "gpt4"): "0754730b412da772",
    ("longbook_qa_eng", "yarn_mistral"): "a96a116c9af8dbaa",
    ("longbook_qa_eng", "gpt4"): "ccf0b267b9c372c6",
    ("longbook_choice_eng", "yarn_mistral"): "212d86c2d9941c13",
    ("longbook_choice_eng", "gpt4"): "792f6e104a98afc1",
    ("longdialogue_qa_eng", "yarn_mistral"): "a51442ca9bb1614e",
    ("longdialogue_qa_eng", "gpt4"): "7d5d4d470b24f1ac",
    ("longbook_qa_chn", "yarn_mistral"): "b98d5da096b8d283",
    ("longbook_qa_chn", "gpt4"): "e1e4f336445d1f5e",
    ("code_debug", "yarn_mistral"): "9a935409e8bbcd09",
    ("code_debug", "gpt4"): "13bc1a652a86cbfb",
    ("code_run", "yarn_mistral"): "c0af3b3b34498456",
    ("code_run", "gpt4"): "611a8adb1d2bcca6",
    ("math_calc", "yarn_mistral"): "31a675f7b87d257a",
    ("math_find", "yarn_mistral"): "254362ef4b6b256e",
    ("math_find", "gpt4"): "254362ef4b6b256e",
}


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize("templates, known", [(YARN_MISTRAL, KNOWN), (GPT4, GPT4_STORED)], ids=["yarn_mistral", "gpt4"])
def test_every_literal_is_the_originals_to_the_byte(
    templates: Mapping[str, str], known: Mapping[str, tuple[str, int]]
) -> None:
    assert {name: (sha(text), len(text)) for name, text in templates.items()} == known
    assert sorted(templates) == sorted(SUBSETS)


@pytest.mark.parametrize("subset, prompts", FILLED)
def test_prompts_are_filled_as_the_original_fills_them(subset: str, prompts: Prompts) -> None:
    rows = rows_of(subset, DATA / f"{subset}.jsonl")
    assert sha("\0".join(filled(subset, prompts, rows[i]) for i in range(len(rows)))) == FILLED[subset, prompts]


def test_braces_in_a_row_stay_as_they_are() -> None:
    row = Row(0, '{context} {input} {"a": 1} {{', "{question} {0}?", ("x",), ("{A}", "b", "c", "d"))
    text = filled("longbook_choice_eng", "yarn_mistral", row)
    assert '{context} {input} {"a": 1} {{\n\nQuestion: {question} {0}?\nA. {A}\nB. b\n' in text


def test_the_question_of_math_find_is_derived_from_its_input() -> None:
    row = Row(0, "[1, 2]", "You should answer. The Second Smallest number of the list is: ", ("1",))
    assert filled("math_find", "gpt4", row).startswith(
        "What is the second smallest number in the following list?\n\n[1"
    )


def test_gpt4s_math_calc_is_the_template_and_not_the_originals_conversation() -> None:
    row = Row(0, "1 + 2", "", ("3",))
    assert filled("math_calc", "gpt4", row) == GPT4["math_calc"].replace("{context}", "1 + 2") != "1 + 2"


@pytest.mark.parametrize(
    "subset, row, says",
    [
        ("code_run", Row(3, "", "call it", ("1",)), "row 3 has no"),
        ("math_find", Row(4, "", "which?", ("1",)), "row 4 has no"),
        ("code_debug", Row(5, "", "", ("f",), ("f", "g")), "row 5 has 2 options, not 4"),
    ],
)
def test_a_row_without_what_its_prompt_asks_for_is_said(subset: str, row: Row, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        filled(subset, "yarn_mistral", row)


def test_budgets_are_the_originals_but_for_the_cap_of_math_calc() -> None:
    assert list(NEW_TOKENS.values()) == [6, 12, 50, 1200, 40, 40, 40, 40, 3, 30000, 5, 5]
    entries = {entry.name: entry.cls for entry in Registry.load().of("task")}
    for subset in SUBSETS:
        task = entries[f"infinitebench/{subset}"]()
        assert task.max_new_tokens == (2048 if subset == "math_calc" else NEW_TOKENS[subset])
        assert task.variant_name() == ("max_new_tokens=2048" if subset == "math_calc" else "")


def test_the_noise_line_is_the_one_of_the_other_tasks() -> None:
    assert json.loads((DATA / "passkey.jsonl").read_text().splitlines()[0])["context"].endswith(f"{NOISE}\n")


# lm-eval's port as a second copy of the gpt4 set: its files are read, not imported as a package.


def _lm_eval() -> Path | None:
    found = util.find_spec("lm_eval")
    folder = Path(found.origin).parent / "tasks" / "infinitebench" if found and found.origin else None
    return folder if folder and folder.is_dir() else None


@pytest.mark.skipif(_lm_eval() is None, reason="lm-eval is not installed")
@pytest.mark.parametrize("subset", [s for s in SUBSETS if s != "math_calc"])
def test_the_gpt4_set_is_lm_evals_too(subset: str) -> None:
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))
    folder = _lm_eval()
    assert folder is not None
    about = yaml.load((folder / f"infinitebench_{subset.replace('_eng', '_en')}.yaml").read_text("utf-8"), Loader)
    spec = util.spec_from_file_location("port", folder / "utils.py")
    assert spec is not None
    assert spec.loader is not None
    port = util.module_from_spec(spec)
    spec.loader.exec_module(port)
    rows = rows_of(subset, DATA / f"{subset}.jsonl")
    for number in range(len(rows)):
        row = rows[number]
        doc: dict[str, Any] = {"context": row.context, "input": row.input, "options": list(row.options)}
        words = about["doc_to_text"]
        body = (
            getattr(port, words.removeprefix("utils."))(doc)
            if words.startswith("utils.")
            else words.replace("{{context}}", row.context).replace("{{input}}", row.input)
        )
        assert about.get("description", "") + body == filled(subset, "gpt4", row)
    assert about["generation_kwargs"]["max_gen_toks"] == NEW_TOKENS[subset]
