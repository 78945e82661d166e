"""The command line: what a person types, what comes back, and that mistakes are said before a model is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ropebench import cli

QUIZ = (
    "A special magic number is hidden within the following text. Make sure to memorize it. I will quiz you about the "
    "number afterwards.\nOne of the special magic numbers for amber-anchor is: 1234567.\nWhat is the special magic "
    "number for amber-anchor mentioned in the provided text? The special magic number for amber-anchor mentioned is"
)
WORDS = "the a needle hay stack of and is in to red blue seven model window length token long short with for".split()
PROSE = ". ".join(" ".join(WORDS[(i * 7 + j) % len(WORDS)] for j in range(9)) for i in range(900)) + ".\n"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random Llama (trained window 256) and a byte-level tokenizer, as save_pretrained leaves it."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    from tokenizers import decoders

    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, special_tokens=["<s>", "</s>"])
    tokenizer.train_from_iterator([PROSE, *[QUIZ] * 50], trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=600, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=256, rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def alias(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The name llama3-8b pointed at the tiny folder, by the file that ROPEBENCH_MODELS names."""
    file = tmp_path / "mine.toml"
    file.write_text(f'[llama3-8b]\nsource = "folder:{tiny}"\ninstruct = false\n', encoding="utf-8")
    monkeypatch.setenv("ROPEBENCH_MODELS", str(file))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def error_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that a mistake prints; exit code 2, nothing on standard output."""
    assert cli.main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    lines = [line for line in said.err.splitlines() if line.startswith("ropebench: error: ")]
    assert len(lines) == 1
    assert "Traceback" not in said.err
    return lines[0]


@pytest.mark.parametrize("more", [pytest.param((), marks=pytest.mark.slow, id="literally"), ("--n", "3")])
def test_the_literal_command_of_the_readme(
    more: tuple[str, ...], alias: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The hub's documents are stood in for by a file of the same layout (not fetched live).
    import huggingface_hub

    file = alias / "snapshots" / ("0" * 40) / "proof-pile" / "test.jsonl"
    file.parent.mkdir(parents=True)
    long = "Z Q X " * 25_000  # more than the 131072 tokens that the published protocol asks of a document
    file.write_text("".join(json.dumps({"text": text, "meta": {}}) + "\n" for text in (long, PROSE, long[98:])))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **__: str(file))
    assert cli.main(["run", "--model", "llama3-8b", "--method", "mrrope_pro", *more]) == 0
    said = capsys.readouterr().out
    records = [json.loads(line) for file in Path("results").glob("*.jsonl") if ".samples" not in file.name
               for line in file.read_text().splitlines()]  # fmt: skip
    lengths = {name: sorted({r["condition"]["length"] for r in records if r["task"]["name"] == name})
               for name in ("proofpile", "niah")}  # fmt: skip
    assert lengths == {"proofpile": [128, 256, 512, 1024], "niah": [256, 512, 1024]}  # niah needs 256 tokens
    assert {record["method"]["label"] for record in records} == {"none", "mrrope_pro×4"}
    assert {record["task"]["name"] for record in records} == {"proofpile", "niah"}
    assert {record["outcome"]["status"] for record in records} == {"ok"}
    filtered = [r for r in records if r["task"]["name"] == "proofpile"]
    assert {record["task"]["params"]["min_doc_tokens"] for record in filtered} == {131072}
    assert {record["condition"]["n_scored"] for record in filtered} == {2}  # of three documents one is too short
    assert "records: results" in said
    assert "1024" in said
    assert str(alias) not in json.dumps(records)  # no path of this machine


def run_words(*more: str) -> list[str]:
    fixed = "run --model llama3-8b --method yarn --docs installed --lengths 256,512 --n 2 --tasks niah,proofpile"
    return [*fixed.split(), *more]


def test_a_second_run_measures_nothing(alias: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(run_words("--json")) == 0
    first = json.loads(capsys.readouterr().out)
    assert len(first) == 8
    assert cli.main(run_words("--json")) == 0
    assert len(json.loads(capsys.readouterr().out)) == 0
    assert cli.main(run_words("--rerun", "--json")) == 0
    again = json.loads(capsys.readouterr().out)
    values = [[{r["cell_id"]: r["outcome"]["metrics"]["nll"]["value"]} for r in run if r["task"]["name"] == "proofpile"]
              for run in (first, again)]  # fmt: skip
    assert values[0] == values[1]
    assert len(values[0]) == 4


def test_plan_report_show_and_leaderboard_read_what_run_wrote(alias: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = run_words()
    assert cli.main(["plan", *words[1:], "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)["cells"]
    assert {row["state"] for row in planned} == {"to run"}
    assert cli.main(words) == 0
    capsys.readouterr()
    assert cli.main(["plan", *words[1:], "--json"]) == 0
    assert {row["state"] for row in json.loads(capsys.readouterr().out)["cells"]} == {"stored"}
    assert cli.main(["report", "--out", "out"]) == 0
    said = capsys.readouterr().out
    assert "yarn×2" in said
    assert "none" in said
    assert "perplexity" in said
    assert Path("out/report.md").is_file()
    assert Path("out/report.csv").is_file()
    assert list(Path("out").glob("*.png"))
    assert cli.main(["leaderboard"]) == 0
    assert cli.main(["leaderboard", "--check"]) == 0
    Path("leaderboard/README.md").write_text("edited by hand")
    assert cli.main(["leaderboard", "--check"]) == 1
    capsys.readouterr()
    cell = next(row["cell_id"] for row in planned if row["task"].startswith("niah") and row["length"] == 256)
    assert cli.main(["show", cell, "--sample", "1", "--json"]) == 0
    sample = json.loads(capsys.readouterr().out)
    assert "special magic number" in sample["prompt_head"]
    assert sample["targets"]
    assert "recall" in sample["scores"]
    assert "9" in error_of(capsys, "show", cell, "--sample", "9")


def test_what_another_revision_of_the_model_measured_is_said(alias: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(run_words()) == 0
    for file in Path("results").glob("*.jsonl"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        older = [{**line, "cell_id": "0" + line["cell_id"][1:]} for line in lines]
        for line in older:
            line.get("model", {})["revision"] = "0ldc0mm1t" * 4
        file.write_text("".join(json.dumps(line) + "\n" for line in older))
    capsys.readouterr()
    assert cli.main(["plan", *run_words()[1:]]) == 0
    said = capsys.readouterr().out
    assert "another revision of the model (0ldc0mm1t0ld, now " in said
    assert said.count("they are kept, and are not part of this comparison") == 4  # method × task


def test_a_longer_length_that_changes_the_factor_is_said(alias: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(run_words()) == 0
    capsys.readouterr()
    longer = ["256,1k" if word == "256,512" else word for word in run_words()[1:]]
    assert cli.main(["plan", *longer]) == 0
    assert "another factor" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--model", "lama3-8b"], ["lama3-8b", "did you mean 'llama3-8b'"]),
        (["--model", "x/y/z"], ["unknown model", "local folder"]),
        (["--method", "yarm"], ["unknown method 'yarm'", "did you mean 'yarn'"]),
        (["--method", "yarn:beta_fats=3"], ["beta_fats", "did you mean 'beta_fast'"]),
        (["--method", "yarn:beta_fast=lots"], ["beta_fast", "a number"]),
        (["--tasks", "nia"], ["unknown task 'nia'", "did you mean 'niah'"]),
        (["--tasks", "niah:variant=numbr"], ["numbr", "did you mean 'number'"]),
        (["--lengths", "12q"], ["12q", "32k"]),
        (["--lengths", "100", "--tasks", "niah"], ["100", "256"]),
        (["--factor", "0.5"], ["0.5", "at least 1"]),
        (["--factor", "4", "--target", "1k"], ["--factor", "--target"]),
        (["--docs", "no-such-folder"], ["no-such-folder", "installed"]),
        (["--bos", "maybe"], ["maybe", "auto"]),
        (["--n", "many"], ["many"]),
        (["--n", "0"], ["0"]),
        (["--dtype", "float8"], ["float8", "bfloat16"]),
        (["--device", "tpu"], ["tpu", "cpu"]),
        (["--sweep", "demmo"], ["demmo", "did you mean 'demo'"]),
        (["--plugin", "nowhere.py"], ["nowhere.py", "no such file"]),
        (["--factor", "1", "--no-baseline"], ["factor 1", "unmodified"]),
    ],
)
def test_mistakes_are_one_clear_line_before_a_model_is_loaded(
    words: list[str], parts: list[str], alias: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ropebench import model

    def never(*_: object, **__: object) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(model, "load", never)
    base = {"--model": "llama3-8b", "--method": "yarn", "--docs": "installed", "--lengths": "256,512"}
    base |= {word: "" for word in words if word in base}
    given = [part for word, value in base.items() if value for part in (word, value)]
    if "--target" in words or "--factor" in words:
        given = [part for part in given if part not in ("--lengths", "256,512")]
    line = error_of(capsys, "run", *given, *words)
    assert all(part in line for part in parts), line


def test_a_results_folder_that_cannot_be_written(alias: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken").write_text("a file")
    assert "taken" in error_of(capsys, *run_words("--results", "taken"))


def test_factor_one_says_so_and_runs_the_baseline_only(alias: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--model", "llama3-8b", "--method", "yarn", "--docs", "installed", "--lengths", "256", "--n", "1"]
    assert cli.main([*words, "--json"]) == 0
    said = capsys.readouterr()
    assert {record["method"]["label"] for record in json.loads(said.out)} == {"none"}
    assert "every method equals the unmodified model" in said.err


def test_no_hub_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROPEBENCH_MODELS", raising=False)
    line = error_of(capsys, "run", "--model", "llama3-8b", "--method", "mrrope_pro", "--docs", "installed")
    assert "meta-llama/Meta-Llama-3-8B-Instruct" in line
    assert "local folder" in line
    assert not Path("results").exists()


def test_the_hub_documents_out_of_reach_name_the_flag_to_use(alias: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = error_of(capsys, "run", "--model", "llama3-8b", "--method", "mrrope_pro")
    assert "--docs installed" in line


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    # PYTHONUNBUFFERED makes the first print meet the closed pipe.
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = f"{sys.executable} -m ropebench.cli list methods | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=env, cwd=tmp_path, check=False)
    assert "methods" in done.stdout
    assert "Traceback" not in done.stderr


def test_list_names_everything(capsys: pytest.CaptureFixture[str]) -> None:
    for what, name in (("methods", "mrrope_pro"), ("tasks", "niah"), ("models", "smollm2-135m"), ("sweeps", "demo")):
        assert cli.main(["list", what, "--json"]) == 0
        assert name in {row["name"] for row in json.loads(capsys.readouterr().out)}
        assert cli.main(["list", what]) == 0
        assert name in capsys.readouterr().out


def test_inspect_prints_the_mixed_radix_view_and_draws_it(alias: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["inspect", "--model", "llama3-8b", "--method", "pi,mrrope_pro", "--target", "1k"]
    assert cli.main([*words, "--json"]) == 0
    rows = {row["label"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["pi×4"]["lambda"][0] == 4.0
    assert rows["pi×4"]["lambda"][1:] == [1.0] * 7
    assert rows["none"]["never_turn_within_window"] == [4, 5, 6, 7]  # 2π·10⁴^(2i/16) > 256 from i = 4 on
    assert cli.main([*words, "--out", "seen"]) == 0
    assert "never turn fully" in capsys.readouterr().out
    assert Path("seen/inspect.png").stat().st_size > 5000
    assert Path("seen/inspect.json").is_file()


def test_the_cache_command_clears_only_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROPEBENCH_CACHE", str(tmp_path))
    (tmp_path / "models" / "x").mkdir(parents=True)
    (tmp_path / "yours.txt").write_text("keep")
    assert cli.main(["cache", "--clear"]) == 0
    assert not (tmp_path / "models").exists()
    assert (tmp_path / "yours.txt").read_text() == "keep"


def test_what_a_plan_expects_is_what_a_run_records(alias: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "llama3-8b", *"--tasks proofpile --method yarn --docs installed --lengths 512 --n 2".split()]
    assert cli.main(["plan", *words]) == 0
    assert "time unknown: --probe measures" in capsys.readouterr().out
    assert cli.main(["plan", *words, "--probe"]) == 0
    assert "time by a probe" in capsys.readouterr().out
    assert cli.main(["plan", *words, "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["totals"]["all"]["basis"] == "an earlier probe"
    expected = planned["totals"]["all"]["tokens"]
    assert expected == sum(row["tokens_left"] for row in planned["cells"]) >= 1024, planned
    assert cli.main(["run", *words, "--json", "-q", "--log-json", "log.jsonl"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    records = json.loads(said.out)
    assert len(records) == 2
    for record, row in zip(records, planned["cells"], strict=True):
        cost = record["cost"]
        assert record["cell_id"] == row["cell_id"]
        assert {**cost["estimate"], "peak_bytes": 0} == {**row["estimate"], "peak_bytes": 0}
        assert cost["tokens"] == cost["estimate"]["tokens"]
        assert cost["peak_bytes"] == pytest.approx(cost["estimate"]["peak_bytes"], rel=0.15)
    events = [json.loads(line) for line in Path("log.jsonl").read_text().splitlines()]
    assert (events[0]["event"], events[-1]["event"], events[-1]["how"]) == ("run_begin", "run_end", "finished")
    assert events[0]["estimate"]["tokens"] == expected
    assert cli.main(["run", *words, "--rerun", "--log-json"]) == 0
    said = capsys.readouterr()
    assert [json.loads(line)["event"] for line in said.err.splitlines()][-1] == "run_end"  # and nothing but JSON
    assert f"cost: {expected:,} tokens (expected {expected:,})" in said.out


MISSPELT = [
    ("rnu", "invalid choice: 'rnu'", "did you mean 'run'?; see ropebench --help"),
    ("list modls", "invalid choice: 'modls'", "did you mean 'models'?; see ropebench list --help"),
    ("run --lenghts 2k", "unrecognized arguments: --lenghts 2k", "did you mean --lengths?; see ropebench run --help"),
    ("show", "the following arguments are required: cell", "see ropebench show --help"),
    ("run --model m --method yarn --n proofpil:3", "unknown task in --n proofpil:3: 'proofpil'", "'proofpile'"),
]


@pytest.mark.parametrize("words, given, meant", MISSPELT)
def test_a_misspelt_word_is_one_line_with_what_was_meant(
    words: str, given: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("ropebench: error: ")
    assert said.count("\n") == 1
    assert given in said
    assert meant in said
