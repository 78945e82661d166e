"""`--model ropebench` on lm-eval's side: what it answers, what it refuses, and that methods are never mixed up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes import tokenizer
from lm_eval_runs import CHOOSE, GENERATE, LIKELIHOOD, ROLLING, evaluated, folder, task_files
from ropebench.errors import UsageError
from ropebench.lm_harness.setting import ModelArguments, Setting


def requests(kind: str, *arguments: tuple[Any, ...]) -> list[Any]:
    from lm_eval.api.instance import Instance

    return [Instance(kind, {}, one, 0, ("test", number, 1)) for number, one in enumerate(arguments)]


def model(name: str = "bpe-bos", **arguments: Any) -> Any:
    from ropebench.lm_harness.model import RopebenchLM

    return RopebenchLM(pretrained=folder(name), device="cpu", **arguments)


# Arguments


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"methd": "yarn"}, "unknown argument in --model_args of model ropebench: 'methd'; did you mean 'method'"),
        ({"parallelize": True}, "unknown argument"),
        ({"method": "yarm", "factor": 2}, "unknown method 'yarm'; did you mean 'yarn'"),
        ({"method": "yarn"}, "by how much.*factor=4, or max_length=2048"),
        ({"method": "yarn", "factor": "four"}, "factor=four"),
        ({"method": "yarn", "factor": 0.5}, "at least 1"),
        ({"method": "yarn", "factor": 2, "target": 1024}, "contradict"),
        ({"max_length": "long"}, "not a number of tokens"),
        ({"bos": "sometimes"}, "unknown BOS rule"),
        ({"dtype": "float8"}, "unknown dtype"),
        ({"pretrained": "no-such-model"}, "unknown model"),
        ({"pretrained": ""}, "pretrained=NAME"),
        ({"offline": "perhaps"}, "must be true or false"),
    ],
)
def test_a_wrong_argument_is_said_before_the_model_is_loaded(
    arguments: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ropebench.lm_harness import model as module

    monkeypatch.setattr(module, "load", lambda *_: pytest.fail("weights were loaded"))
    with pytest.raises(UsageError, match=message):
        module.RopebenchLM(**{"pretrained": folder(), "device": "cpu", **arguments})


@pytest.mark.parametrize(
    "arguments, factor, window",
    [
        ({}, None, 512),
        ({"max_length": "1k"}, None, 1024),
        ({"method": "yarn", "factor": 4}, 4.0, 2048),
        ({"method": "yarn", "max_length": 1024}, 2.0, 1024),
        ({"method": "yarn", "factor": 4, "max_length": 1024}, 4.0, 1024),
        ({"method": "mrrope_pro", "target": "1k"}, 2.0, 1024),
    ],
)
def test_factor_and_window(arguments: dict[str, Any], factor: float | None, window: int) -> None:
    setting = Setting.of(ModelArguments.of({"pretrained": folder(), "device": "cpu", **arguments}))
    assert (setting.factor, setting.max_length) == (factor, window)


def test_lm_evals_own_default_device_means_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    asked = ModelArguments.of({"pretrained": folder(), "device": "cuda:0"})
    assert not Setting.of(asked).device.startswith("cuda")
    with pytest.raises(UsageError, match="device 'cuda:1' is not available here"):
        Setting.of(ModelArguments.of({"pretrained": folder(), "device": "cuda:1"}))


def test_the_results_say_what_ran() -> None:
    info = model(method="yarn:beta_fast=16", factor=2).get_model_info()
    assert info["method"] == "yarn"
    assert info["method_params"]["beta_fast"] == 16.0
    assert (info["factor"], info["max_length"], info["bos"], info["trained_length"]) == (2.0, 1024, "auto", 512)
    assert info["model_revision"]


# Answers


def test_stock_tasks_score_as_with_lm_evals_own_model(tmp_path: Path) -> None:
    """All four kinds of request, unmodified model, equal to float rounding."""
    tasks = task_files(tmp_path, gen={**GENERATE, "num_fewshot": 1, "fewshot_split": "train"}, mc=CHOOSE, ll=LIKELIHOOD)
    for name in ("bpe-bos", "bpe", "word-bos"):
        ours, theirs = (
            evaluated(kind, {"pretrained": folder(name), "max_length": 512}, ["gen", "mc", "ll"], include=tasks)
            for kind in ("ropebench", "hf")
        )
        for task in ("gen", "mc", "ll"):
            for mine, other in zip(ours["samples"][task], theirs["samples"][task], strict=True):
                for a, b in zip(mine["resps"], other["resps"], strict=True):
                    if task == "gen":
                        assert a == b
                    else:
                        assert a[0][0] == pytest.approx(b[0][0], rel=1e-4)
                        assert a[0][1] == b[0][1]


def test_a_continuation_is_greedy_when_the_model_would_have_written_it() -> None:
    lm = model()
    context = "The for statement is used to iterate over the elements of"
    (said,) = lm.generate_until(requests("generate_until", (context, {"until": [], "max_gen_toks": 4})))
    ids = list(said.ids)
    from ropebench.lm_harness.spelling import Spelled

    before = Spelled(context, lm.encoder.markup(context))
    wrong = [*ids[:-1], (ids[-1] + 1) % 400]
    pairs = [(before, Spelled("x", one)) for one in (ids, ids[:1], wrong, ids)]
    answers = lm.loglikelihood(requests("loglikelihood", *pairs))
    assert [greedy for _, greedy in answers] == [True, True, False, True]
    assert answers[0][0] == pytest.approx(-sum(answers[0].nll))


def test_fault_24_one_bos_and_every_token_scored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """BOS tokenizer, text of 10 tokens: the input begins with exactly one BOS, and 10 tokens are scored, not 11."""
    lm, words = model("word-bos"), tokenizer("word-bos")
    text = words.decode(words("the of and a in is for as with by the of", add_special_tokens=False)["input_ids"][:10])
    assert len(words(text, add_special_tokens=False)["input_ids"]) == 10
    fed: list[list[int]] = []
    plain = type(lm.engine).nll

    def look(self: Any, ids: Any, *more: Any, **how: Any) -> Any:
        fed.append(list(ids))
        return plain(self, ids, *more, **how)

    monkeypatch.setattr(type(lm.engine), "nll", look)
    lm.loglikelihood_rolling(requests("loglikelihood_rolling", (text,)))
    lm.loglikelihood(requests("loglikelihood", (text, " the"), (words.bos_token + text, " the")))
    assert [len(ids) for ids in fed] == [11, 12, 12]
    assert all(ids[0] == words.bos_token_id and ids.count(words.bos_token_id) == 1 for ids in fed)
    assert lm.get_model_info()["bos"] == "auto"


def test_rolling_likelihood_in_windows_is_lm_evals(tmp_path: Path) -> None:
    """A tokenizer that adds no BOS, which lm-eval's own model would double: the same total, window by window."""
    from lm_eval.models.huggingface import HFLM

    text = " ".join(f"{word} {n}" for n, word in enumerate(["for", "class", "return", "the"] * 12))
    mine = model("bpe", max_length=32).loglikelihood_rolling(requests("loglikelihood_rolling", (text,)))
    stock = HFLM(pretrained=folder("bpe"), device="cpu", max_length=32)
    assert mine == pytest.approx(stock.loglikelihood_rolling(requests("loglikelihood_rolling", (text,))), rel=1e-4)


def test_tables_that_depend_on_the_length_are_set_for_each_text() -> None:
    """A text within the window scores as under the unmodified model, also after a long one (FAULT 03)."""
    short, long = ("for i in range(3):", " pass"), ("for i in range(3): " * 120, " pass")
    plain = model("bpe").loglikelihood(requests("loglikelihood", short))
    dynamic = model("bpe", method="dynamic_ntk", factor=4)
    both = dynamic.loglikelihood(requests("loglikelihood", long, short))
    assert both[1] == pytest.approx(plain[0])
    assert both[0] != pytest.approx(model("bpe", max_length=2048).loglikelihood(requests("loglikelihood", long))[0])


def test_nothing_is_cut_and_nothing_sampled() -> None:
    lm = model(max_length=64)
    long = "for i in range(3): " * 30
    with pytest.raises(UsageError, match="exceed the window of 64; nothing is cut"):
        lm.generate_until(requests("generate_until", (long, {"until": [], "max_gen_toks": 4})))
    with pytest.raises(UsageError, match="exceed the window of 64"):
        lm.generate_until(requests("generate_until", ("for", {"until": []})))  # lm-eval's default budget of 256
    with pytest.raises(UsageError, match="exceed the window of 64"):
        lm.loglikelihood(requests("loglikelihood", (long, " x")))
    with pytest.raises(UsageError, match="greedily"):
        lm.generate_until(requests("generate_until", ("for", {"until": [], "do_sample": True, "temperature": 1.0})))


# Stored answers


def test_fault_45_answers_of_one_method_are_never_given_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cache path: the second method runs the model for every request, the first one again for none."""
    from ropebench.engine import Engine

    tasks = task_files(tmp_path / "tasks", gen=GENERATE, mc=CHOOSE, roll=ROLLING)
    calls = {"n": 0}
    for name in ("nll", "generate"):
        plain = getattr(Engine, name)

        def count(self: Any, *given: Any, plain: Any = plain, **how: Any) -> Any:
            calls["n"] += 1
            return plain(self, *given, **how)

        monkeypatch.setattr(Engine, name, count)

    def run(**more: Any) -> tuple[int, Any]:
        calls["n"] = 0
        arguments = {"pretrained": folder(), "max_length": 512, **more}
        results = evaluated(
            "ropebench", arguments, ["gen", "mc", "roll"], include=tasks, use_cache=str(tmp_path / "answers")
        )
        return calls["n"], [[row["resps"] for row in results["samples"][task]] for task in ("gen", "mc", "roll")]

    (first, plain), (second, scaled) = run(), run(method="yarn", factor=4)
    assert first == second > 0
    assert plain != scaled
    assert run() == (0, plain)
    assert run(method="yarn", factor=4) == (0, scaled)
    assert run(method="yarn:beta_fast=16", factor=4)[0] == first


def test_answers_in_a_batch_are_those_of_one_at_a_time() -> None:
    words = "the value of the name is set for each class and module object that returns a list of types".split()
    asked = [" ".join(words[i % 7 :] * 4 + words[:i]) for i in range(6)]
    given = {"until": ["\n"], "max_gen_toks": 6}

    def answers(**arguments: Any) -> list[str]:
        return model(method="yarn", factor=2, **arguments).generate_until(
            requests("generate_until", *((text, given) for text in asked)), disable_tqdm=True
        )

    alone = answers()
    assert answers(batch_size=4) == answers(batch_size="auto") == alone
    assert len(set(alone)) > 1


def test_a_batch_size_that_is_none_is_said() -> None:
    with pytest.raises(UsageError, match="--batch-size many"):
        Setting.of(ModelArguments.of({"pretrained": folder(), "device": "cpu", "batch_size": "many"}))
