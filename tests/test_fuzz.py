"""Whatever a user gets wrong is one clear line: no traceback, no hang, and no file but where it was asked for.

`make test` tries some hundred cases, `make fuzz` (ROPEBENCH_FUZZ=FACTOR, times as many) more than ten thousand.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections.abc import Iterator
from copy import deepcopy
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from ropebench import store
from ropebench.cli import main
from ropebench.errors import UsageError
from ropebench.geometry import Frequencies, RopeGeometry, geometry_of
from ropebench.methods import Native
from ropebench.plan import factor_of, make_plan
from ropebench.record import canonical
from ropebench.registry import Registry
from ropebench.sweep import Sweep, length_of
from ropebench.verify import verdict
from stub_run import finish

FACTOR = int(os.environ.get("ROPEBENCH_FUZZ", "1"))
REGISTRY = Registry.load()
METHODS = [entry.name for entry in REGISTRY.of("method")]
TASKS = [entry.name for entry in REGISTRY.of("task")]


def cases(number: int) -> Any:
    """So many examples, times the factor; the same ones every time but in the long mode."""
    return settings(
        max_examples=number * FACTOR, deadline=None, database=None, derandomize=FACTOR == 1,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
        phases=[Phase.explicit, Phase.generate] + ([Phase.shrink] if FACTOR > 1 else []),
    )  # fmt: skip


def in_time(test: Any) -> Any:
    """Each case has ten seconds of the processor, however busy the machine is; what waits for ever has five minutes."""

    def late(number: int, frame: Any) -> None:
        raise TimeoutError("a hang")

    @wraps(test)
    def timed(*arguments: Any, **named: Any) -> None:
        before = [signal.signal(one, late) for one in (signal.SIGPROF, signal.SIGALRM)]
        signal.setitimer(signal.ITIMER_PROF, 10)
        signal.setitimer(signal.ITIMER_REAL, 300)
        try:
            test(*arguments, **named)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            for one, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
                signal.signal(one, handler)

    return timed


_WRITES = {"open": 0, "os.mkdir": 0, "os.rename": 1, "os.remove": 0, "os.symlink": 1, "os.link": 1, "os.rmdir": 0}
_watched: list[str] | None = None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook (there is no taking it off again): notes every path that is written to, made or removed."""
    if _watched is None or event not in _WRITES:
        return
    path = arguments[_WRITES[event]]
    reads = event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    if (
        not reads
        and isinstance(path, str | bytes)
        and not {"__pycache__", ".hypothesis"} & set(Path(os.fsdecode(path)).parts)
    ):
        _watched.append(os.path.realpath(os.fsdecode(path)))


sys.addaudithook(_watch)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    folder = tmp_path_factory.mktemp("run")
    finish(folder)
    files = [next(folder.glob("*.samples.jsonl")), next(f for f in folder.glob("*.jsonl") if ".samples" not in f.name)]
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, lines: Any) -> Iterator[Path]:
    """An empty working folder; nothing may be written elsewhere."""
    global _watched
    folder = tmp_path_factory.mktemp("here")
    make_plan(Sweep("tiny", ("yarn",), ("niah",), "1k"), corpora=False)  # what is imported late is imported now
    before = Path.cwd()
    os.chdir(folder)
    _watched = []
    yield folder
    os.chdir(before)
    said, _watched = _watched, None
    allowed = (str(folder.resolve()), os.path.realpath(os.environ["ROPEBENCH_CACHE"]), "/dev/null")
    assert [path for path in said if not path.startswith(allowed)] == []


# What people, and programs, write by mistake or on purpose.
NASTY = [
    "",
    " ",
    ":",
    "=",
    ",",
    "::",
    "a=b",
    "../x",
    "/etc/passwd",
    "~",
    "~root/x",
    "a\0b",
    "x" * 300,
    "-1",
    "0",
    "1e999",
    "nan",
    "inf",
    "9" * 400,
    "9" * 5000,
    "٣",
    "½",
    "²",
    "1_000",
    "0x10",
    "true",
    "None",
    "[]",
    "{}",
    "<script>",
    "\ud800",
    "\x1b[2J",
    "%s",
    "$x$",
    "k",
    "1k",
    "32k",
    "1.5k",
    "-k",
    "lm_eval:",
    "lm_eval:..",
    "hub:",
    "hub:a/b",
]
text = st.one_of(st.sampled_from(NASTY), st.text(max_size=12))
number = st.one_of(st.integers(-3, 70000), st.floats(), st.sampled_from([10**9, 10**18, 10**400, 1e308, 5e-324]))
scalar = st.one_of(text, number, st.booleans())
names = st.sampled_from([*METHODS, *TASKS, "ruler", "linear", "dynamic", "infinitebench"])
parameters = st.sampled_from(sorted({field for kind in ("method", "task") for entry in REGISTRY.of(kind)
                                     for field in entry.cls.__dataclass_fields__}))  # fmt: skip


@st.composite
def words(draw: Any) -> str:
    """`yarn:beta_fast=16`, nearly."""
    word = draw(st.one_of(names, names, text))
    for key, value in draw(st.lists(st.tuples(st.one_of(parameters, text), scalar.map(str)), max_size=2)):
        word += f":{key}={value}" if len(value) != 1 else f":{key}"
    return str(word)


def mistake(error: UsageError) -> None:
    """A message that a person can read."""
    assert str(error)


# The registry


@cases(100)
@given(kind=st.sampled_from(["method", "task"]), word=words())
@example(kind="task", word="niah:depths=" + "9" * 5000)
@in_time
def test_any_word_is_a_method_or_task_or_a_mistake(kind: str, word: str, here: Path) -> None:
    try:
        for one in REGISTRY.expanded(kind, word) if "lm_eval" not in word else []:
            made, entry = REGISTRY.build(kind, one)
            assert made.name == entry.name
            json.dumps(made.params)
    except UsageError as error:
        mistake(error)


# The command line

FLAGS = ["--model", "--method", "--tasks", "--lengths", "--target", "--factor", "--n", "--seed", "--docs", "--bos",
         "--chat-template", "--base", "--trained-length", "--revision", "--models", "--device", "--dtype",
         "--attention", "--device-map", "--quantize", "--batch-size", "--plugin", "--sweep", "--results",
         "--matched", "--offline", "--no-baseline", "--json", "--rerun"]  # fmt: skip
COMMANDS = [["inspect"], ["inspect", "--model", "tiny"], ["inspect", "--model", "tiny", "--method", "yarn"], ["plan"],
            ["run"], ["list"], ["list", "tasks"], ["compare", "a"], ["report"], ["leaderboard"], ["show"], ["verify"],
            ["export", "yarn"], ["export", "yarn", "--model", "tiny"], ["import", "lm-eval"], ["reproduce"], ["cache"],
            ["lens", "train"]]  # fmt: skip


@cases(80)
@given(command=st.sampled_from(COMMANDS), more=st.lists(st.one_of(st.sampled_from(FLAGS), words(), scalar.map(str)),
                                                        max_size=4))  # fmt: skip
@example(command=["verify"], more=["9" * 400])
@example(command=["import", "lm-eval"], more=["x" * 300])
@example(command=["leaderboard", "--add"], more=["x" * 300 + ".jsonl"])
@in_time
def test_any_command_line_ends_with_a_clear_word(
    command: list[str], more: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if command[0] in ("run", "reproduce"):
        more = ["--model", "no such model", *more, "--model", "no such model"]  # measures nothing, whatever it says
    if command[0] == "lens":
        more = ["tiny", "--steps", "none", *more]
    line = [*command, *more]
    if "hub:" in str(line) or "lm_eval" in str(line):
        return  # asks the network, or is lm-eval's own
    try:
        code = main(line)
    except SystemExit as ended:  # argparse's own
        code = ended.code if isinstance(ended.code, int) else 2
    said = capsys.readouterr()
    assert code in (0, 1, 2), line
    assert code != 2 or said.err or not more, line
    assert "Traceback" not in said.err
    assert len(said.err) < 10_000, line
    assert "\x1b" not in said.out + said.err


# Sweeps


def toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return repr(value) if isinstance(value, int | float) else json.dumps(value)


KEYS = [*Sweep.__dataclass_fields__, "metod", "length", ""]
several = st.one_of(scalar, words(), st.lists(words() | scalar, max_size=3), st.just([]),
                    st.dictionaries(names | text, scalar, max_size=2))  # fmt: skip
sweeps = st.dictionaries(st.sampled_from(KEYS), several, max_size=4)


@cases(100)
@given(
    table=sweeps,
    whole=st.booleans(),
    junk=st.one_of(st.none(), st.binary(max_size=30), text.map(lambda word: word.encode(errors="surrogatepass"))),
)
@in_time
def test_any_sweep_file_is_a_plan_or_a_mistake(
    table: dict[str, Any], whole: bool, junk: bytes | None, here: Path
) -> None:
    usual = {"model": "tiny", "methods": ["yarn"], "tasks": ["niah"], "lengths": "1k", "offline": True} if whole else {}
    lines = "".join(f"{json.dumps(key)} = {toml(value)}\n" for key, value in {**usual, **table}.items())
    (here / "sweep.toml").write_bytes(lines.encode("utf-8", "surrogatepass") + (junk or b""))
    try:
        sweep = Sweep.from_toml("sweep.toml")
        if not any("lm_eval" in str(word) for word in table.values()):
            plan = make_plan(sweep, corpora=False)
            assert all(cell.factor is None or 1 <= cell.factor < math.inf for cell in plan.cells)
    except UsageError as error:
        mistake(error)


# Results files


json_values = st.recursive(
    st.none() | scalar, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=3,
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value[:3]):
            yield from places(inner, (*path, key))


def changed(line: Any, path: tuple[Any, ...], how: str, new: Any) -> Any:
    line = deepcopy(line)
    at = line
    for key in path[:-1]:
        at = at[key]
    if not path:
        return new
    if how == "gone" and isinstance(at, dict):
        del at[path[-1]]
    elif how == "more" and isinstance(at, dict):
        at[str(new)[:20]] = new
    else:
        at[path[-1]] = new
    return line


@cases(80)
@given(data=st.data())
@in_time
def test_any_results_file_is_read_or_named_by_its_line(
    data: Any, lines: list[list[Any]], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, records = lines
    kind = data.draw(st.integers(0, 3))
    which = data.draw(st.integers(0, len(lines[kind > 0]) - 1))
    chosen = lines[kind > 0][which]
    path = data.draw(st.sampled_from(list(places(chosen))))
    new = changed(chosen, path, data.draw(st.sampled_from(["gone", "more", "other", "other"])), data.draw(json_values))
    folder = here / "fuzzed"
    folder.mkdir(exist_ok=True)
    for name, own in (("run.samples.jsonl", rows), ("run.jsonl", records)):
        kept = [*own]
        if own is lines[kind > 0]:
            kept[which] = new
        raw = "".join(json.dumps(one) + "\n" for one in kept).encode()
        cut = data.draw(st.one_of(st.none(), st.none(), st.binary(max_size=5)))
        (folder / name).write_bytes(raw if cut is None else raw[:-9] + cut)
    try:
        said = verdict(store.everything(folder)).fatal
    except UsageError as error:
        mistake(error)
        return
    for one in said:
        assert ".jsonl" in str(one), one
    command = data.draw(st.sampled_from([["report"], ["report", "--format", "latex", "--out", "tables"],
                                         ["report", "--json"], ["compare", "none", "yarn×4"],
                                         ["show", records[6]["cell_id"]]]))  # fmt: skip
    code = main([*command, "--results", "fuzzed"])
    out = capsys.readouterr()
    assert code in (0, 1, 2)
    assert code != 2 or out.err.startswith("ropebench: error: ")


@cases(20)
@given(raw=st.lists(st.one_of(st.binary(max_size=20), json_values.map(lambda v: json.dumps(v).encode())), max_size=4))
@example(raw=[b'{"schema": 2, "kind": "run", "x": 1' + b"0" * 5000 + b"}"])
@example(raw=[b"[" * 100_000])
@in_time
def test_any_bytes_are_no_records(raw: list[bytes], here: Path) -> None:
    folder = here / "bytes"
    folder.mkdir(exist_ok=True)
    (folder / "run.jsonl").write_bytes(b"\n".join([*raw, b""]))
    found = store.everything(folder)
    assert all(one.startswith("run.jsonl:") for one in found.unread)
    if found.unread:
        with pytest.raises(UsageError, match=r"run\.jsonl:\d"):
            store.read(folder)


# Arithmetic

CONFIG = ["model_type", "rope_parameters", "rope_scaling", "rope_theta", "rotary_emb_base", "head_dim", "hidden_size",
          "num_attention_heads", "partial_rotary_factor", "rotary_pct", "max_position_embeddings", "n_positions",
          "original_max_position_embeddings", "qk_rope_head_dim", "text_config"]  # fmt: skip
ROPE = ["rope_type", "type", "rope_theta", "factor", "partial_rotary_factor", "original_max_position_embeddings",
        "mrope_section", "long_factor", "attention_factor", "low_freq_factor"]  # fmt: skip
rope = st.dictionaries(st.sampled_from(ROPE), st.none() | scalar, max_size=4)
config = st.fixed_dictionaries({}, optional={key: st.none() | scalar | rope for key in CONFIG})
usual = {"model_type": "llama", "rope_theta": 10000.0, "head_dim": 64, "max_position_embeddings": 4096}


@cases(60)
@given(given=config, whole=st.booleans(), trained=st.none() | st.integers(1, 10**6))
@example(given={"head_dim": "x" * 300, "partial_rotary_factor": 10**9}, whole=True, trained=None)
@in_time
def test_any_config_has_a_geometry_or_says_why_not(given: dict[str, Any], whole: bool, trained: int | None) -> None:
    try:
        found = geometry_of({**usual, **given} if whole else given, trained)
    except UsageError as error:
        mistake(error)
        return
    assert found.rotary_dim % 2 == 0
    assert found.trained_length >= 1
    assert len(found.inv_freq()) == found.pairs
    try:
        own = Native().frequencies(found, 1.0, found.extended_length)
    except UsageError as error:
        mistake(error)
        return
    assert np.isfinite(own.inv_freq).all()


@cases(100)
@given(name=st.sampled_from(METHODS), half=st.integers(1, 256), theta=st.floats(1, 1e30), trained=st.integers(1, 2**40),
       factor=st.floats(1, 1e12), length=st.integers(1, 2**50), key=parameters,
       value=st.floats() | st.integers(-5, 100) | st.booleans())  # fmt: skip
@in_time
def test_any_geometry_and_factor_give_a_table_or_a_mistake(
    name: str, half: int, theta: float, trained: int, factor: float, length: int, key: str, value: Any
) -> None:
    cls = REGISTRY.entry("method", name).cls
    word = f"{name}:{key}={value}" if key in cls.__dataclass_fields__ else name
    try:
        geometry = RopeGeometry(2 * half, theta, trained)
        method, _ = REGISTRY.build("method", word)
        table = method.frequencies(geometry, factor, length)
    except UsageError as error:
        mistake(error)
        return
    assert isinstance(table, Frequencies)
    assert table.inv_freq.shape == (half,)
    assert np.isfinite(table.inv_freq).all()
    assert (table.inv_freq >= 0).all()


@cases(20)
@given(word=st.one_of(scalar, st.from_regex(r"\d{1,4}(\.\d)?[kKmM]?", fullmatch=True)), target=st.integers(1, 10**9))
@in_time
def test_any_length_and_factor(word: Any, target: int) -> None:
    try:
        length = length_of(word)
    except UsageError as error:
        mistake(error)
        return
    yarn, _ = REGISTRY.build("method", "yarn")
    for sweep in (Sweep(), Sweep(matched=True)):
        factor, _ = factor_of(sweep, yarn, 4096, target, length)
        assert factor is not None
        assert 1 <= factor < math.inf


def test_what_is_fuzzed_can_be_right(lines: list[list[Any]]) -> None:
    """The cases start from records and words that are in order, so that what is found wrong is what was changed."""
    assert all(json.loads(canonical(one)) == one for each in lines for one in each)
    assert len(METHODS) > 10
    assert len(TASKS) > 10
