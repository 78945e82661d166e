"""From what is asked to cells: factors, labels, identities; and what is wrong is said before any weight is read."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from fakes import GEOMETRY, cell, save_tiny, tiny_config
from ropebench.corpus import Corpus
from ropebench.errors import UsageError
from ropebench.geometry import RopeGeometry
from ropebench.methods import DynamicNtk, MrRopePro, Native, Unscaled, Yarn
from ropebench.model import ModelCard, ModelSpec
from ropebench.plan import Sweep, factor_of, length_of, make_plan

TASK = """
from dataclasses import dataclass
from ropebench import Example, Metric, Task

@dataclass(frozen=True)
class Marks(Task):
    name = "marks"
    metrics = (Metric("right", "higher"),)
    minimum_length = 16
    size: int = 3

@dataclass(frozen=True)
class Documents(Task):
    name, needs_corpus, chat, default_n = "documents", True, False, 7
    metrics = (Metric("right", "higher"),)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("plugins") / "marks.py"
    file.write_text(TASK, encoding="utf-8")
    return str(file)


@pytest.fixture
def sweep(folder: Path, plugin: str) -> Sweep:
    """A sweep that works, to be changed: trained on 64 tokens, tested at 64 and 256."""
    return Sweep(
        model=str(folder), methods=("yarn",), tasks=("marks",), lengths="64,256", plugins=(plugin,), device="cpu",
        dtype="float32",
    )  # fmt: skip


def planned(sweep: Sweep, **changes: Any) -> Any:
    return make_plan(dataclasses.replace(sweep, **changes))


def rows(plan: Any) -> list[tuple[str, int]]:
    return [(one.method_label, one.length) for one in plan.cells]


# Factors


def test_the_target_sets_the_factor_for_every_length(sweep: Sweep) -> None:
    plan = planned(sweep)
    assert rows(plan) == [("none", 256), ("none", 64), ("yarn×4", 256), ("yarn×4", 64)]  # the baseline, longest first
    assert [one.factor_rule for one in plan.cells] == ["none", "none", "target=256", "target=256"]
    assert rows(planned(sweep, target=512))[2:] == [("yarn×8", 256), ("yarn×8", 64)]
    assert rows(planned(sweep, target=128))[2:] == [("yarn×2", 256), ("yarn×2", 64)]


def test_the_target_is_the_longest_length_of_all_tasks(sweep: Sweep) -> None:
    plan = planned(sweep, tasks=("marks", "niah"), lengths={"marks": "64", "niah": "1k"}, docs="installed")
    assert {one.factor for one in plan.cells if one.method.name == "yarn"} == {16.0}


def test_matched_sets_the_factor_cell_by_cell(sweep: Sweep) -> None:
    plan = planned(sweep, matched=True, lengths="64,96,256")
    assert rows(plan) == [("none", 256), ("none", 96), ("none", 64), ("yarn×4", 256), ("yarn×1.5", 96)]
    assert any("factor 1 at length 64" in note for note in plan.notes)


def test_a_factor_can_be_pinned(sweep: Sweep) -> None:
    assert rows(planned(sweep, factor=3))[2:] == [("yarn×3", 256), ("yarn×3", 64)]
    assert {one.factor_rule for one in planned(sweep, factor=3).cells} == {"none", "factor"}


def test_a_target_below_the_window_matters_to_no_method_without_a_factor(sweep: Sweep) -> None:
    assert rows(planned(sweep, methods=("dynamic_ntk",), target=32, baseline=False, lengths="256"))
    assert rows(planned(sweep, methods=(), target=32)) == [("none", 256), ("none", 64)]


def test_an_alias_may_ask_for_fewer_samples_than_a_task(sweep: Sweep, tmp_path: Path, folder: Path) -> None:
    def n_of(fewer: int, **changes: Any) -> set[int]:
        file = tmp_path / "models.toml"
        file.write_text(f'[mine]\nsource = "folder:{folder}"\nn = {fewer}\n', encoding="utf-8")
        return {one.n for one in planned(sweep, model="mine", models=str(file), **changes).cells}

    assert n_of(3) == {3}
    assert n_of(99) == {10}  # the task's own
    assert n_of(3, n=7) == {7}
    with pytest.raises(UsageError, match="n must be at least 1 sample, not 0"):
        n_of(0)


def test_at_factor_1_only_the_baseline_is_run_and_it_says_so(sweep: Sweep) -> None:
    plan = planned(sweep, lengths="32,64")
    assert rows(plan) == [("none", 64), ("none", 32)]
    assert any("every method equals the unmodified model" in note for note in plan.notes)
    assert rows(planned(sweep, factor=1)) == [("none", 256), ("none", 64)]
    with pytest.raises(UsageError, match=r"nothing to run: factor 1 at length 64 .*--no-baseline"):
        planned(sweep, lengths="32,64", baseline=False)


def test_length_dependent_methods_run_at_every_length(sweep: Sweep) -> None:
    assert rows(planned(sweep, methods=("dynamic",), lengths="32", baseline=False)) == [("dynamic_ntk", 32)]


def test_a_method_that_uses_no_factor_carries_none(sweep: Sweep) -> None:
    asked = {"methods": ("dynamic_ntk", "dynamic_ntk:f=2", "dynamic_yarn"), "baseline": False}
    near, far, pinned = (planned(sweep, **asked, **how) for how in ({"target": 256}, {"target": 512}, {"factor": 3.0}))
    assert rows(near)[::2] == [("dynamic_ntk", 256), ("dynamic_ntk:f=2.0", 256), ("dynamic_yarn", 256)]
    assert {(one.factor, one.factor_rule) for one in near.cells} == {(None, "none")}
    assert [one.id for one in near.cells] == [one.id for one in far.cells] == [one.id for one in pinned.cells]


def test_one_place_computes_the_factor() -> None:
    assert factor_of(Sweep(), Yarn(), 64, 256, 32) == (4.0, "target=256")
    assert factor_of(Sweep(), Yarn(), 64, 32, 32) == (1.0, "target=32")
    assert factor_of(Sweep(matched=True), Yarn(), 64, 256, 96) == (1.5, "matched")
    assert factor_of(Sweep(matched=True), Yarn(), 64, 256, 32) == (1.0, "matched")
    assert factor_of(Sweep(factor=2), Yarn(), 64, 256, 96) == (2.0, "factor")
    assert factor_of(Sweep(), Unscaled(), 64, 256, 256) == (None, "none")


# Rows, lengths, numbers of samples


def test_the_baseline_is_added_once_and_can_be_left_out(sweep: Sweep) -> None:
    names = [one.method.name for one in planned(sweep, methods=("none", "yarn", "linear", "pi"), lengths="256").cells]
    assert names == ["none", "yarn", "pi"]
    assert [one.method.name for one in planned(sweep, lengths="256", baseline=False).cells] == ["yarn"]
    assert [one.method.name for one in planned(sweep, lengths="256", methods=()).cells] == ["none"]


def test_the_same_cell_is_planned_once(sweep: Sweep) -> None:
    words = ("yarn", "yarn:beta_fast=32")
    assert len(planned(sweep, methods=words, tasks=("marks", "marks:size=3"), lengths="256,256").cells) == 2


def test_parameters_stand_in_the_label(sweep: Sweep) -> None:
    plan = planned(sweep, methods=("yarn:beta_fast=16:attention_factor=1.0",), lengths="256")
    assert plan.cells[1].method_label == "yarn:beta_fast=16.0:attention_factor=1.0×4"
    assert plan.cells[1].method == Yarn(beta_fast=16.0, attention_factor=1.0)


def test_the_default_lengths_are_shares_of_the_trained_length(sweep: Sweep) -> None:
    assert {one.length for one in planned(sweep, lengths=None).cells} == {32, 64, 128, 256}
    assert {one.length for one in planned(sweep, lengths=None, trained_length=40).cells} == {20, 40, 80, 160}
    plan = planned(sweep, lengths=None, trained_length=20)
    assert {one.length for one in plan.cells} == {20, 40, 80}
    assert "marks: default lengths below its minimum of 16 left out: 10" in plan.notes
    with pytest.raises(UsageError, match="length 12 is below the minimum of task 'marks'"):
        planned(sweep, lengths=None, trained_length=3)


def test_lengths_n_and_docs_by_task(sweep: Sweep, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One. Two. " * 50)
    plan = planned(
        sweep, tasks=("marks", "documents"), lengths={"marks": ["64", "1k"], "documents": 128}, n={"marks": 3},
        docs={"documents": f"mine={tmp_path}"}, methods=(),
    )  # fmt: skip
    assert [(one.task_label, one.length, one.n) for one in plan.cells] == [
        ("marks", 1024, 3), ("marks", 64, 3), ("documents[mine]", 128, 7),
    ]  # fmt: skip
    assert {one.n for one in planned(sweep, n=5).cells} == {5}
    # A sweep file may say something of a task that is left out this time.
    assert len(planned(sweep, lengths={"marks": "64", "niah": "1k"}, methods=()).cells) == 1


def test_a_corpus_is_opened_once_and_only_when_needed(
    sweep: Sweep, plugin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def note(word: str, offline: bool = False) -> Corpus:
        opened.append(word)
        return Corpus("mine", "nowhere", lambda: iter([]), identity="abc")

    monkeypatch.setattr("ropebench.plan.open_corpus", note)
    asked = {"tasks": ("documents",), "methods": ("yarn", "pi", "ntk"), "docs": "installed"}
    assert {one.corpus.label for one in planned(sweep, **asked).cells if one.corpus} == {"mine"}
    assert opened == ["installed"]
    make_plan(dataclasses.replace(sweep, **asked), corpora=False)
    assert opened == ["installed"]
    with pytest.raises(UsageError, match="task 'documents' needs long text: give --docs installed"):
        planned(sweep, tasks=("documents",))


def test_the_chat_template_follows_the_alias_the_setting_and_the_task(
    sweep: Sweep, folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'[chatty]\nsource = "folder:{folder}"\ninstruct = true\n')
    asked = {"tasks": ("marks", "documents"), "methods": (), "lengths": "64", "docs": "noise"}

    def chats(**more: Any) -> list[bool]:
        return [one.chat for one in planned(sweep, **asked, **more).cells]

    assert chats() == [False, False]
    assert chats(chat_template="on") == [True, False]
    assert chats(model="chatty", models=str(file)) == [True, False]
    assert chats(model="chatty", models=str(file), chat_template="off") == [False, False]


def test_a_sliding_window_is_pointed_out(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ModelSpec("m", "a/b")
    monkeypatch.setattr("ropebench.plan.card", lambda *_, **__: ModelCard(spec, "a/b", "r", None, GEOMETRY, 128))
    assert any("within a sliding window of 128 tokens" in note for note in planned(sweep).notes)
    assert not any("sliding" in note for note in planned(sweep, lengths="64").notes)


# Checkpoints that ship a scaling

SHIPPED: dict[str, dict[str, Any]] = {
    "llama3": {
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "dynamic": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
    "longrope": {
        "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [1.0, 2.0, 3.0, 4.0], "original_max_position_embeddings": 64,
    },
}  # fmt: skip


@pytest.fixture
def shipping(request: pytest.FixtureRequest, sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    kind = request.param
    longest = 64 if kind == "dynamic" else 256
    config = tiny_config("llama", rope_parameters=SHIPPED[kind], max_position_embeddings=longest)
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", lambda *_, **__: config)
    return dataclasses.replace(sweep, model="some/shipping", methods=("none", "yarn"), lengths="64,512")


@pytest.mark.parametrize("shipping", SHIPPED, indirect=True)
def test_the_baseline_of_a_checkpoint_that_ships_scaling_is_native(shipping: Sweep) -> None:
    plan = planned(shipping)
    assert [one.method.name for one in plan.cells] == ["native"] * 2 + ["none"] * 2 + ["yarn"] * 2
    native, none, yarn = (next(one for one in plan.cells if one.method.name == n) for n in ("native", "none", "yarn"))
    plain = RopeGeometry(8, 1e4, 64)
    assert yarn.factor == 8.0  # from the trained length, never twice by accident
    np.testing.assert_array_equal(none.method.frequencies(none.geometry, 1.0, 64).inv_freq, plain.inv_freq())
    np.testing.assert_array_equal(
        yarn.method.frequencies(yarn.geometry, 8.0, 64).inv_freq, Yarn().frequencies(plain, 8.0, 64).inv_freq
    )
    own = native.method.frequencies(native.geometry, 1.0, native.length)
    assert not own.same_as(none.method.frequencies(none.geometry, 1.0, 512))
    assert len({one.id for one in plan.cells}) == 6


@pytest.mark.parametrize("shipping", SHIPPED, indirect=True)
def test_base_native_starts_from_the_shipped_table(shipping: Sweep) -> None:
    plan = planned(shipping, base="native")
    native, none, yarn = (next(one for one in plan.cells if one.method.name == n) for n in ("native", "none", "yarn"))
    extended = native.geometry.extended_length
    shipped = Native().frequencies(native.geometry, 1.0, extended)
    assert yarn.geometry.trained_length == extended
    assert yarn.factor == 512 / extended
    np.testing.assert_array_equal(yarn.geometry.inv_freq(), shipped.inv_freq)
    # The unmodified models are what they are, whatever the methods start from.
    assert native.geometry.shipped
    np.testing.assert_array_equal(
        none.method.frequencies(none.geometry, 1.0, 64).inv_freq, RopeGeometry(8, 1e4, 64).inv_freq()
    )
    assert {one.base for one in plan.cells} == {"native"}


# Mistakes

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"model": ""}, "no model: give --model NAME"),
    ({"model": "llama3-8bb"}, "unknown model 'llama3-8bb'; did you mean 'llama3-8b'"),
    ({"methods": ("yarnn",)}, "unknown method 'yarnn'; did you mean 'yarn'"),
    ({"methods": ("yarn:beta_fats=16",)}, "'beta_fats'; did you mean 'beta_fast'"),
    ({"methods": ("yarn:beta_fast=soon",)}, "beta_fast='soon' is not a number"),
    ({"methods": ("yarn:beta_fast",)}, "'beta_fast' is not key=value"),
    ({"methods": ("yarn:beta_fast=1:beta_fast=2",)}, "beta_fast is given twice"),
    ({"methods": ("",)}, "unknown method ''"),
    ({"methods": ("longrope",)}, "longrope: long_factor needs 4 numbers"),
    ({"tasks": ()}, "no task: give --tasks"),
    ({"tasks": ("niahh",)}, "unknown task 'niahh'; did you mean 'niah'"),
    ({"tasks": ("niah:variant=numbr",), "lengths": "1k"}, "did you mean 'number'"),
    ({"lengths": "64,25x"}, "length '25x' is not a number of tokens; write 32768 or 32k"),
    ({"lengths": "0"}, "length '0' must be at least 1 token"),
    ({"lengths": "-1k"}, "must be at least 1 token"),
    ({"lengths": []}, "no length for task 'marks'"),
    ({"lengths": ""}, "length '' is not a number"),
    ({"lengths": "8"}, "length 8 is below the minimum of task 'marks' (16 tokens)"),
    ({"lengths": {"mark": "64"}}, "unknown task in lengths: 'mark'; did you mean 'marks'"),
    ({"n": {"mark": 3}}, "unknown task in n: 'mark'"),
    ({"n": 0}, "--n 0: the number of samples must be a whole number of at least 1"),
    ({"n": True}, "--n True"),
    ({"n": 2.5}, "--n 2.5"),
    ({"docs": {"marks": 3}}, "--docs 3"),
    ({"target": 32}, "--target 32 is below the trained window of tiny-llama (64 tokens)"),
    ({"plugins": ("no-such-file.py",)}, "--plugin 'no-such-file.py': no such file"),
    ({"device": "gpu"}, "unknown device 'gpu'"),
    ({"dtype": "float31"}, "unknown dtype 'float31'; did you mean 'float32'"),
    ({"model": "no/such/place"}, "or a local folder, or a hub id"),
    ({"revision": "v2"}, "does not come from the hub"),
]


@pytest.mark.parametrize("changes, words", MISTAKES, ids=[words[:40] for _, words in MISTAKES])
def test_a_mistake_is_one_clear_line_before_any_weight_is_read(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], words: str
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", never)
    with pytest.raises(UsageError) as caught:
        planned(sweep, **changes)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


FORMS: list[tuple[dict[str, Any], str]] = [
    ({"factor": 0.5}, "--factor 0.5: must be at least 1"),
    ({"factor": float("nan")}, "--factor nan"),
    ({"factor": float("inf")}, "--factor inf"),
    ({"factor": "4"}, "factor = '4': must be a number"),
    ({"factor": True}, "factor = True: must be a number"),
    ({"factor": 2.0, "matched": True}, "--matched and --factor contradict each other"),
    ({"factor": 2.0, "target": 128}, "--target and --factor contradict each other"),
    ({"target": 128, "matched": True}, "--target and --matched contradict each other"),
    ({"target": 0}, "--target 0: must be at least 1 token"),
    ({"trained_length": -5}, "--trained-length -5"),
    ({"seed": "0"}, "seed = '0': must be a whole number"),
    ({"seed": 1.5}, "seed = 1.5"),
    ({"matched": "yes"}, "matched = 'yes': must be true or false"),
    ({"methods": "yarn"}, "methods = 'yarn': must be a list of words"),
    ({"tasks": (3,)}, "must be a list of words"),
    ({"bos": "alwys"}, "unknown BOS rule 'alwys'; did you mean 'always'"),
    ({"chat_template": "yes"}, "unknown chat template setting 'yes'"),
    ({"base": "nativ"}, "unknown base 'nativ'; did you mean 'native'"),
    ({"attention": "sdap"}, "unknown attention backend 'sdap'; did you mean 'sdpa'"),
    ({"batch_size": 0}, "--batch-size 0: allowed: a number"),
    ({"batch_size": "many"}, "--batch-size many: allowed: a number"),
    ({"batch_size": True}, "--batch-size True: allowed: a number"),
]


@pytest.mark.parametrize("changes, words", FORMS, ids=[words[:40] for _, words in FORMS])
def test_a_sweep_checks_the_form_of_every_word(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        Sweep(**changes)
    assert words in str(caught.value)


BROKEN = """
from dataclasses import dataclass
import numpy as np
from ropebench import Frequencies, Method

@dataclass(frozen=True)
class Broken(Method):
    name = "broken"
    def frequencies(self, geometry, factor, length):
        return 1 / 0

@dataclass(frozen=True)
class Short(Method):
    name = "short"
    def frequencies(self, geometry, factor, length):
        return Frequencies(np.ones(3))
"""


@pytest.mark.parametrize("name, words", [
    ("broken", r"method broken×4: has no table at length 256 \(ZeroDivisionError: division by zero\)"),
    ("short", "method short×4: its table has 3 frequencies, the model has 4 pairs"),
])  # fmt: skip
def test_a_method_that_cannot_is_said_before_the_model_is_loaded(
    sweep: Sweep, tmp_path: Path, name: str, words: str
) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    with pytest.raises(UsageError, match=words):
        planned(sweep, methods=(name,), plugins=(*sweep.plugins, str(tmp_path / "mine.py")))


# Sweep files


def test_a_sweep_file_says_what_the_flags_say(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'model = "m"\nmethods = "pi,yarn:beta_fast=16"\ntasks = ["niah"]\ntarget = "16k"\nseed = 3\n'
        '[lengths]\nniah = ["1k", 2048]\n[n]\nniah = 5\n'
    )
    sweep = Sweep.from_toml(str(file))
    assert sweep == Sweep(
        model="m", methods=("pi", "yarn:beta_fast=16"), tasks=("niah",), target=16384, seed=3,
        lengths={"niah": ["1k", 2048]}, n={"niah": 5},
    )  # fmt: skip
    assert sweep.lengths_of("niah") == (1024, 2048)
    assert sweep.n_of("niah") == 5


@pytest.mark.parametrize("text, words", [
    ('modle = "m"\n', r"unknown key in sweep mine\.toml: 'modle'; did you mean 'model'"),
    ('seed = "x"\n', r"sweep mine\.toml: seed = 'x'"),
    ('target = "far"\n', r"sweep mine\.toml: length 'far'"),
    ("seed = \n", r"sweep 'mine\.toml'"),
])  # fmt: skip
def test_a_sweep_file_with_a_mistake_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(UsageError, match=words):
        Sweep.from_toml(str(tmp_path / "mine.toml"))


@pytest.mark.parametrize("word, words", [
    ("first-evidense", "did you mean 'first-evidence'"), ("a\0b", "sweep"), ("/", "cannot be read"),
])  # fmt: skip
def test_a_sweep_that_is_not_there(word: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Sweep.from_toml(word)


def test_the_built_in_sweeps_are_in_order() -> None:
    from ropebench.registry import sweeps

    for name in sweeps():
        assert Sweep.from_toml(name).methods


def test_lengths() -> None:
    assert [length_of(word) for word in ("32768", "32k", "32K", 5, " 2k ")] == [32768, 32768, 32768, 5, 2048]


# Identity


def test_the_identity_of_a_hand_made_cell_is_golden() -> None:
    # A change here makes every stored result another cell: raise the version of what changed instead.
    one = cell(method=MrRopePro(), factor=4.0, factor_rule="target=256")
    assert one.identity == {
        "model": {
            "id": "fake", "revision": "abc123", "trained_length": 64, "dtype": "float32", "attention": "sdpa",
            "quantization": None,
        },
        "method": {
            "name": "mrrope_pro", "version": 1, "params": {"beta_fast": 32.0, "beta_slow": 1.0,
            "attention_factor": None}, "code": None, "factor": 4.0, "base": "unscaled",
            "frequencies": FREQUENCIES,
        },
        "task": {
            "name": "coins", "version": 1, "params": {}, "code": None, "scorer": "equal", "corpus": None,
        },
        "length": 32, "seed": 0, "bos": "auto", "chat_template": False,
    }  # fmt: skip
    assert one.id == GOLDEN


FREQUENCIES = "1fd1a0f9d7030f3a"
GOLDEN = "4d37908bbb5c7062"


def corpus(identity: str) -> Corpus:
    return Corpus("mine", "nowhere", lambda: iter([]), identity=identity)


def test_the_id_changes_with_everything_the_number_depends_on() -> None:
    plain = cell(method=Yarn(), factor=4.0, corpus=corpus("a"))
    card = plain.card
    changed = {
        "model": {"card": dataclasses.replace(card, spec=ModelSpec("other", "some/fake"))},
        "revision": {"card": dataclasses.replace(card, revision="def456")},
        "geometry": {"geometry": RopeGeometry(8, 5000.0, 64)},
        "trained length": {"geometry": RopeGeometry(8, 10000.0, 32)},
        "base": {"base": "native"},
        "dtype": {"dtype": "bfloat16"},
        "attention": {"attention": "eager"},
        "method": {"method": MrRopePro()},
        "length-dependent method": {"method": DynamicNtk()},
        "parameter": {"method": Yarn(beta_fast=16.0)},
        "attention factor": {"method": Yarn(attention_factor=1.0)},
        "method's code": {"method_code": "f" * 64},
        "factor": {"factor": 2.0},
        "task's code": {"task_code": "f" * 64},
        "corpus": {"corpus": corpus("b")},
        "no corpus": {"corpus": None},
        "length": {"length": 64},
        "seed": {"seed": 1},
        "BOS": {"bos": "always"},
        "chat template": {"chat": True},
    }
    ids = {name: dataclasses.replace(plain, **change).id for name, change in changed.items()}
    assert [name for name, other in ids.items() if other == plain.id] == []
    assert len(set(ids.values())) == len(ids)


def test_the_id_does_not_change_with_how_it_is_run() -> None:
    plain = cell(method=Yarn(), factor=4.0)
    same: list[dict[str, Any]] = [
        {"n": 99}, {"device": "cuda:1"}, {"factor_rule": "matched"}, {"trust_remote_code": True},
        {"method": Yarn(beta_fast=32.0)},
    ]  # fmt: skip
    assert {dataclasses.replace(plain, **change).id for change in same} == {plain.id}


def test_the_id_is_the_same_in_another_process_and_order(sweep: Sweep) -> None:
    first = {one.id for one in planned(sweep, methods=("yarn", "pi")).cells}
    assert {one.id for one in planned(sweep, methods=("pi", "yarn")).cells} == first
    assert {one.id for one in planned(sweep, methods=("yarn",)).cells} < first
