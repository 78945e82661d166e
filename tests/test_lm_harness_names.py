"""lm-eval's tasks by name, group or folder: what a cell of one holds, what is refused, and samples made to a length."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from fakes import tokenizer
from lm_eval_runs import CHOOSE, GENERATE, examples, folder, task, task_files
from ropebench.errors import UsageError
from ropebench.lm_harness import foreign, index, samples
from ropebench.plan import make_plan
from ropebench.prompt import Encoder
from ropebench.registry import Registry
from ropebench.sweep import Sweep
from ropebench.task import Output

# Identity


def test_the_cell_holds_files_data_version_and_method(tmp_path: Path) -> None:
    where = task_files(tmp_path / "tasks", gen=GENERATE)

    def cells(word: str = f"lm_eval:{where}") -> list[Any]:
        lru = (foreign.loaded, foreign.data_sha256, foreign.measures_of, foreign._sizes)
        [cached.cache_clear() for cached in lru]
        return list(make_plan(Sweep(model=folder(), methods=("yarn",), factor=2.0, tasks=(word,), lengths=64)).cells)

    plain = cells()
    assert len({cell.id for cell in plain}) == 2  # none, yarn
    assert [cell.id for cell in cells()] == [cell.id for cell in plain]
    identity = plain[0].identity["task"]
    assert identity["scorer"] == "lm_eval"
    assert identity["params"]["lm_eval"] == index.VERSION
    assert len(identity["params"]["data_sha256"]) == len(identity["code"]) == 64
    assert str(where) not in json.dumps(identity)
    shots = cells(f"lm_eval:{where}:num_fewshot=1")
    (where / "gen.yaml").write_text((where / "gen.yaml").read_text().replace("Question", "Ask"))
    edited = cells()
    (where / "questions.jsonl").write_text(json.dumps({"q": "Why?", "a": "So.", "label": 0, "text": "."}) + "\n")
    others = [shots, edited, cells()]
    assert len({cell.id for some in [plain, *others] for cell in some}) == 8
    assert "1-shot" in shots[0].task_label


def test_n_and_lengths_go_by_family_and_the_default_length_is_one(tmp_path: Path) -> None:
    from ropebench.arguments import parser, sweep_of

    where = task_files(tmp_path, gen=GENERATE, mc=CHOOSE)
    words = [
        "plan",
        "--model",
        folder(),
        "--tasks",
        f"lm_eval:{where},niah",
        "--docs",
        "noise",
        "--n",
        "lm_eval:3,niah:2",
    ]
    options = parser(defaultdict(lambda: None)).parse_args(words)
    cells = make_plan(sweep_of(options)).cells
    assert {(cell.task.name, cell.n) for cell in cells} == {("lm_eval/gen", 3), ("lm_eval/mc", 3), ("niah", 2)}
    assert {cell.length for cell in cells if cell.task.name != "niah"} == {2048}  # 4 × the window, as the longest


# Names


def test_names_groups_and_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        "a": index.Known("arc/arc_easy.yaml"),
        "b": index.Known("arc/arc_challenge.yaml"),
        "tagged": index.Known(members=("a", "b")),
        "grouped": index.Known(members=("tagged", "a")),
        "changed": index.Known(members=("a",), why_not="this group changes its tasks' settings (num_fewshot)"),
    }
    monkeypatch.setattr(index, "built_in", lambda: known)
    assert [one.name for one in index.sources("grouped")] == ["a", "b"]
    assert index.sources("a")[0].code != index.sources("b")[0].code
    with pytest.raises(UsageError, match=r"unknown lm-eval task 'taged'; did you mean 'tagged'"):
        index.sources("taged")
    with pytest.raises(UsageError, match=r"num_fewshot.*name the tasks you mean"):
        index.sources("changed")


def test_fault_46_a_folder_here_with_a_tasks_name_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A working directory with a folder called `ruler`; a task of one's own with the name of a built-in one."""
    monkeypatch.setattr(index, "built_in", lambda: {"ruler": index.Known("arc/arc_easy.yaml")})
    monkeypatch.chdir(tmp_path)
    own = task_files(tmp_path / "ruler", ruler=GENERATE)
    assert index.sources("ruler")[0].origin == f"lm_eval {index.VERSION}"
    assert index.sources("./ruler")[0].origin == "folder ruler"
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match=r"write lm_eval:\./mine"):
        index.sources("mine")
    registry = Registry.load()
    registry.expanded("task", f"lm_eval:{own}")
    with pytest.raises(UsageError, match="defined twice"):
        registry.expanded("task", "lm_eval:ruler")


@pytest.mark.parametrize(
    "changes, params, message",
    [
        ({"dataset_path": "no/such-data-set"}, "", "cannot set it up.*no/such-data-set"),
        ({"dataset_kwargs": {"data_files": {"test": "/nowhere/x.jsonl"}}}, "", "cannot set it up"),
        (
            {"metric_list": [{"metric": "bleu", "aggregation": "bleu", "higher_is_better": True}]},
            "",
            "over all samples",
        ),
        ({"generation_kwargs": {"until": [], "do_sample": True, "temperature": 1.0}}, "", "greedily"),
        ({"unsafe_code": True}, "", "runs code"),
        ({"doc_to_image": "{{q}}"}, "", "images"),
        ({"num_fewshot": 0}, ":num_fewshot=2", "fixed at 0"),
        ({}, ":num_fewshot=-1", "at least 0"),
        ({}, ":room=64", "not made to a length"),
        ({}, ":fewshot=2", "did you mean 'num_fewshot'"),
        ({}, ":data_sha256=abc", "not abc"),
        ({"doc_to_text": "{{q | nosuchfilter}}"}, "", "cannot set it up"),
    ],
)
def test_what_cannot_be_run_is_said_before_a_model_is_loaded(
    tmp_path: Path, changes: dict[str, Any], params: str, message: str
) -> None:
    where = task_files(tmp_path, gen={**GENERATE, **changes})
    with pytest.raises(UsageError, match=message):
        next(iter(task(f"lm_eval:{where}{params}").examples(64, Encoder(tokenizer()), 0)))


def test_a_yaml_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    task_files(tmp_path, gen=GENERATE)
    (tmp_path / "broken.yaml").write_text("task: [unclosed")
    with pytest.raises(UsageError, match=r"broken\.yaml cannot be read"):
        index.sources(str(tmp_path))
    with pytest.raises(UsageError, match="no such file or folder"):
        index.sources("./nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no task"):
        index.sources(str(tmp_path / "empty"))


# Samples made to a length


SIZED = """
import datasets
import random
import time
from lm_eval.tasks.ruler.common_utils import get_tokenizer, resolve_tokenizer_name

RNG = random.Random(42)


def make(max_seq_lengths=(4096,), **given):
    tokenizer = get_tokenizer(resolve_tokenizer_name(given))
    rows = []
    for length in max_seq_lengths:
        if length == 666:
            while True:
                try:
                    time.sleep(0.1)
                    assert False
                except:
                    pass
        for _ in range(4):
            text = " ".join(str(RNG.randrange(10)) for _ in range(length))
            ids = tokenizer(text).input_ids[: length - SHORT]
            number = str(random.randrange(1000))
            text = tokenizer.decode(ids, skip_special_tokens=True)
            rows.append({"input": text, "outputs": [number], "max_length": length})
    return {"test": datasets.Dataset.from_list(rows)}


def score(doc, results):
    found = {"4096": -1.0, str(doc["max_length"]): float(doc["outputs"][0] in results[0])}
    return found


def collect(values):
    kept = [value for value in values if value != -1]
    return sum(kept) / len(kept) if kept else -1
"""


def sized_files(where: Path, short: int = 24) -> Path:
    where.mkdir()
    (where / "made.py").write_text(SIZED.replace("SHORT", str(short)))
    (where / "sized.yaml").write_text(
        "task: sized\noutput_type: generate_until\ntest_split: test\ncustom_dataset: !function made.make\n"
        'doc_to_text: "{{input}}"\ndoc_to_target: "{{outputs}}"\nprocess_results: !function made.score\n'
        'generation_kwargs: {do_sample: false, max_gen_toks: 8, until: []}\nmetric_list:\n  - metric: "4096"\n'
        "    aggregation: !function made.collect\n    higher_is_better: true\n"
    )
    return where


def test_one_length_per_call_seeded_and_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULT 34, and lm-eval's random state: what comes out depends on seed, length and tokenizer alone."""
    where = sized_files(tmp_path / "tasks")
    word = f"lm_eval:{where}"
    first = examples(word, 256)
    assert [one.targets for one in first] == [one.targets for one in examples(word, 256)]
    assert all(one.tokens <= 256 and len(one.ids) > 200 for one in first)
    asked = task(word)
    assert [metric.name for metric in asked.metrics] == ["score"]
    assert asked.score(first[0], Output(f"it is {first[0].targets[0]}")) == {"score": 1.0}
    assert asked.score(first[0], Output("")) == {"score": 0.0}
    made = []
    plain = samples._make
    monkeypatch.setattr(samples, "_make", lambda *given: (made.append(given[1]), plain(*given)))
    foreign._sized.cache_clear()
    assert [one.ids for one in examples(word, 256)] == [one.ids for one in first]
    assert made == []  # from the cache
    other_seed = list(asked.examples(256, Encoder(tokenizer("bpe-bos")), 1))
    assert [one.targets for one in other_seed] != [one.targets for one in first]
    assert len(examples(word, 128, "word-bos")) == 4
    assert made == [256, 128]


def test_samples_that_lm_eval_would_cut_are_refused_and_room_helps(tmp_path: Path) -> None:
    where = sized_files(tmp_path / "tasks", short=0)
    with pytest.raises(UsageError, match=r"would cut it; write lm_eval:sized:room=\d+"):
        examples(f"lm_eval:{where}", 256)
    assert all(one.skip is None for one in examples(f"lm_eval:{where}:room=32", 256))


def test_samples_without_an_answer_are_refused(tmp_path: Path) -> None:
    """What lm-eval's common-words task makes where no word fits; its scorer then divides by zero."""
    where = sized_files(tmp_path / "tasks")
    (where / "made.py").write_text((where / "made.py").read_text().replace('"outputs": [number]', '"outputs": []'))
    with pytest.raises(UsageError, match="without an answer; give a longer length"):
        examples(f"lm_eval:{where}", 256)


def test_fault_31_a_generator_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = sized_files(tmp_path / "tasks")
    monkeypatch.setattr(samples, "PATIENCE", 8.0)
    monkeypatch.setattr(samples, "PATIENCE_PER_TOKEN", 0.0)
    with pytest.raises(UsageError, match="has not made its samples of 666 tokens within 8 s"):
        examples(f"lm_eval:{where}", 666)
    with pytest.raises(UsageError, match="room leaves no token"):
        examples(f"lm_eval:{where}:room=300", 256)


def test_lm_eval_is_asked_for_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import ropebench.lm_harness

    monkeypatch.setattr(ropebench.lm_harness, "find_spec", lambda _: None)
    for call in (lambda: ropebench.lm_harness.found("lm_eval:x"), lambda: ropebench.lm_harness.main(["ls"])):
        with pytest.raises(UsageError, match=r"pip install 'lm_eval==0\.4\.13'"):
            call()
