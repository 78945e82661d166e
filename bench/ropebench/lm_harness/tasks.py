"""ropebench's tasks inside lm-eval: one class for all, and a folder of YAML files that names them.

Documents are a task's own examples, so a sample here is the sample of `ropebench run`: the same ids, scored by the same
code. lm-eval's Hugging Face model takes strings; where a string does not encode to an example's ids (a document cut
inside a word) the example is left out for such a model and counted, and a score that needs the likelihood of single
tokens is not given. `--model ropebench` takes the ids, and has neither limit.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.metrics import mean
from lm_eval.api.task import Task as LmEvalTask
from lm_eval.config.task import TaskConfig
from lm_eval.filters import build_filter_ensemble

from ropebench.corpus import Corpus, open_corpus
from ropebench.errors import UsageError
from ropebench.lm_harness.spelling import Likelihood, Spelled, as_lm_eval_encodes, spelled, spelled_pair
from ropebench.lm_harness.window import checked, lengths_of, max_length_of, tokenizer_of
from ropebench.outcome import prompt_sha256
from ropebench.prompt import Encoder
from ropebench.record import digest
from ropebench.registry import Registry
from ropebench.sample_cache import kept_examples
from ropebench.task import Example, Output, Task

log = logging.getLogger(__name__)


class RopebenchTask(LmEvalTask):  # type: ignore[misc]
    """The task that a YAML file names by `ropebench: WORD`, a word as `--tasks` takes it (`niah:variant=passkey`).

    From `--metadata` (lm-eval adds the model's arguments): `max_seq_lengths`, a list (default: the model's window);
    `n`, `docs`, `seed` and `bos`, as in `ropebench run`.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        given = checked(config.get("metadata") or {})
        registry = Registry.load(config.get("plugins") or ())
        self.given = given
        self.task, self.entry = registry.build("task", str(config["ropebench"]))
        self.lengths = lengths_of(self.task, given)
        offline = bool(given.get("offline", False))
        self.corpus = self._corpus(offline)
        task = self.task.on_this_machine() if offline else self.task
        self.task = task.resolved(self.lengths, self.corpus) if self.corpus else task.resolved(self.lengths)
        self.tokenizer = tokenizer_of(given)
        self.seed = int(given.get("seed", 0))
        self.chat = False
        self.VERSION = self.task.version
        self.OUTPUT_TYPE = config.get("output_type", "generate_until")
        self._config = TaskConfig(task=config["task"], num_fewshot=0, metadata=given, generation_kwargs={"until": []})
        self._config.output_type = self.OUTPUT_TYPE
        self._config.generation_kwargs = {}  # what --gen_kwargs add to an example's own
        self._filters = [build_filter_ensemble("none", [["take_first", None]])]
        self._instances: list[Instance] | None = None
        self._left_out: set[int] = set()

    # The documents

    def _corpus(self, offline: bool) -> Corpus | None:
        if not self.task.needs_corpus:
            return None
        word = self.given.get("docs") or self.task.docs()
        if word is None:
            raise UsageError(f"task {self.task.name!r} needs long text: give --metadata docs=installed or a folder")
        return open_corpus(word, offline)

    @cached_property
    def encoder(self) -> Encoder:
        add = self.given.get("add_bos_token")
        bos = self.given.get("bos") or ("auto" if add is None else "always" if add else "never")
        return Encoder(self.tokenizer, bos, self.chat and self.task.chat)

    @cached_property
    def _made(self) -> list[tuple[dict[str, Any], Example]]:
        """Documents and their examples: sample 0 at every length, then sample 1 …, so that any --limit is balanced."""
        n = int(self.given.get("n", self.task.default_n))
        window = max_length_of(self.given, self.tokenizer)
        own = (self.seed, self.corpus, self.entry.code)
        columns = [list(islice(kept_examples(self.task, length, self.encoder, *own), n)) for length in self.lengths]
        made: list[tuple[dict[str, Any], Example]] = []
        skipped: list[str] = []
        for index in range(max(map(len, columns))):
            for length, column in zip(self.lengths, columns, strict=True):
                example = column[index] if index < len(column) else None
                if example is None:
                    continue
                if example.skip is not None:
                    skipped.append(example.skip)
                    continue
                if example.tokens > window:
                    raise UsageError(self._too_long(length, window, f"sample {index} takes {example.tokens} tokens"))
                document = {
                    "id": len(made),
                    "index": index,
                    "length": length,
                    "tokens": example.tokens,
                    "prompt_sha256": prompt_sha256(example),
                    "targets": list(example.targets),
                    "meta": dict(example.meta),
                }
                made.append((document, example))
        if not made:
            raise UsageError(f"{self._config.task}: no sample fits: {skipped[0] if skipped else 'the source has none'}")
        if skipped:
            log.warning("%s: %d samples do not fit and are left out (%s)", self._config.task, len(skipped), skipped[0])
        self._config.metadata["ropebench"] = {
            "task": self.task.name,
            "version": self.task.version,
            "params": self.task.params,
            "code": self.entry.code,
            "scorer": self.task.scorer_name(),
            "lengths": list(self.lengths),
            "seed": self.seed,
            "bos": self.encoder.bos,
            "corpus": self.corpus.describe() if self.corpus else None,
            "samples_skipped": len(skipped),
            "samples_sha256": digest([document["prompt_sha256"] for document, _ in made], 64),
        }
        return made

    def _too_long(self, length: int, window: int, what: str) -> str:
        return (
            f"{self._config.task}: {what}, but the model's window is {window} and lm-eval would cut the prompt's "
            f"beginning off; add max_length={length} to --model_args, or give shorter max_seq_lengths in --metadata"
        )

    @property
    def eval_docs(self) -> list[dict[str, Any]]:
        return [document for document, _ in self._made]

    def build_all_requests(self, **how: Any) -> None:
        """As lm-eval's own, with the chat template applied by ropebench, and without lm-eval's cache of requests, whose
        keys know neither length nor tokenizer. Raises UsageError for a system prompt, which no sample has."""
        if how.get("system_instruction"):
            raise UsageError(f"{self._config.task}: its prompts are fixed; leave out --system_instruction")
        if how.pop("cache_requests", False):
            log.warning("%s: made without --cache_requests, which mixes lengths and tokenizers", self._config.task)
        if (chat := bool(how.get("apply_chat_template"))) != self.chat:
            self.chat = chat
            self.__dict__.pop("_made", None), self.__dict__.pop("encoder", None)
        super().build_all_requests(**how)

    def fewshot_context(self, doc: dict[str, Any], num_fewshot: int = 0, **_: Any) -> str:
        return ""  # an example brings its own prompt

    def construct_requests(self, doc: dict[str, Any], ctx: str, **how: Any) -> list[Instance]:
        """One request for text where the example asks for it, and one per likelihood window."""
        example, requests = self._made[doc["id"]][1], []
        encode = as_lm_eval_encodes(self.tokenizer, self.given.get("add_bos_token"))
        asked: list[tuple[str, tuple[Any, ...]]] = []
        if example.max_new_tokens:
            words = {"do_sample": False, "until": list(example.stop), "max_gen_toks": example.max_new_tokens}
            words |= self._config.generation_kwargs
            asked.append(("generate_until", (spelled(self.tokenizer, encode, example.ids), words)))
            window, new = max_length_of(self.given, self.tokenizer), int(words["max_gen_toks"])
            if len(example.ids) + new > window:
                raise UsageError(self._too_long(doc["length"], window, f"--gen_kwargs asks for {new} new tokens"))
        for one in example.windows:
            asked.append(("loglikelihood", spelled_pair(self.tokenizer, encode, one.ids, one.first_scored)))
        for number, (kind, arguments) in enumerate(asked):
            known = {"metadata": how["metadata"], "idx": number, "doc": doc}
            requests.append(Instance(request_type=kind, arguments=arguments, **known))
        return requests

    # The scores

    def process_results(self, doc: dict[str, Any], results: Sequence[Any]) -> dict[str, float]:
        """The example's scores, by name (several lengths: name@length); none where the model was given a string that
        stands for other ids."""
        example, results = self._made[doc["id"]][1], list(results)
        takes_ids = all(isinstance(result, (Spelled, Likelihood)) for result in results)
        text = results.pop(0) if example.max_new_tokens else ""
        if takes_ids:
            output = Output(str(text), getattr(text, "ids", ()), tuple(result.nll for result in results))
            scores = self.task.score(example, output)
        elif not self._is_exact(doc["id"]):
            self._leave_out(doc["id"])
            return {}
        else:
            scores = by_totals(self.task, example, str(text), [-float(total) for total, _ in results])
        for metric in self.task.metrics:
            if metric.derived is not None and metric.derived[1] in scores:
                scores[metric.name] = scores[metric.derived[1]]  # exp comes after the mean
        bad = [name for name, value in scores.items() if not math.isfinite(value)]
        if bad:
            raise ArithmeticError(f"{self._config.task}: {bad[0]} of document {doc['id']} is not finite")
        return {self._named(name, doc["length"]): value for name, value in scores.items()}

    def _is_exact(self, number: int) -> bool:
        mine = [request for request in self._instances or () if request.doc["id"] == number]
        return all(part.exact for request in mine for part in request.args if isinstance(part, Spelled))

    def _leave_out(self, number: int) -> None:
        self._left_out.add(number)
        asked = {request.doc["id"] for request in self._instances or ()}
        where = f"{self._config.task}: {len(self._left_out)} of {len(asked)} documents"
        if self._left_out >= asked:
            raise UsageError(
                f"{where} are no text that encodes to the same tokens, so none is left; use `ropebench lm-eval --model "
                "ropebench`, which takes the tokens"
            )
        log.warning("%s left out so far: no text encodes to their tokens (--model ropebench takes tokens)", where)

    def _named(self, name: str, length: int) -> str:
        return name if len(self.lengths) == 1 else f"{name}@{length}"

    def aggregation(self) -> dict[str, Any]:
        return {
            self._named(metric.name, length): mean if metric.derived is None else exp_of_mean
            for metric in self.task.metrics
            for length in self.lengths
        }

    def higher_is_better(self) -> dict[str, bool]:
        return {
            self._named(metric.name, length): metric.direction == "higher"
            for metric in self.task.metrics
            for length in self.lengths
        }

    # What lm-eval asks every task

    def has_training_docs(self) -> bool:
        return False

    def has_validation_docs(self) -> bool:
        return False

    def has_test_docs(self) -> bool:
        return True

    def test_docs(self) -> list[dict[str, Any]]:
        return self.eval_docs

    def doc_to_text(self, doc: dict[str, Any]) -> str:
        return self.encoder.decode(self._made[doc["id"]][1].ids)

    def doc_to_target(self, doc: dict[str, Any]) -> str:
        return "\n".join(doc["targets"])


def exp_of_mean(values: Sequence[float]) -> float:
    """Perplexity: exp of the mean over documents; infinity beyond floating point."""
    try:
        return math.exp(sum(values) / len(values))
    except OverflowError:
        return math.inf


def by_totals(task: Task, example: Example, text: str, totals: Sequence[float]) -> dict[str, float]:
    """The scores that need no more of a window than its total NLL: those which stay the same wherever in the window the
    NLL is put."""
    counts = [len(window.ids) - window.first_scored for window in example.windows]
    spread = [
        tuple([total / count] * count for total, count in zip(totals, counts, strict=True)),
        tuple([total, *[0.0] * (count - 1)] for total, count in zip(totals, counts, strict=True)),
        tuple([*[0.0] * (count - 1), total] for total, count in zip(totals, counts, strict=True)),
    ]
    scores, *others = (task.score(example, Output(text, nll=nll)) for nll in (spread if totals else spread[:1]))
    return {
        name: value
        for name, value in scores.items()
        if all(name in other and math.isclose(value, other[name], rel_tol=1e-6) for other in others)
    }
