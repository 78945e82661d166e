"""From the words of `ropebench lens spectrum` and `… dependence` to records: what can be wrong is said before weights
are loaded, then it is measured and stored."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any

from ropebench.corpus import Corpus, Document, open_corpus
from ropebench.errors import UsageError
from ropebench.lens.corpora import (
    Source,
    beside_model,
    granularities,
    identity_of,
    reaches,
)  # fmt: skip
from ropebench.lens.corpora import (
    dependence as dependence_of,
)
from ropebench.lens.record import ends, lens_record, model_of
from ropebench.lens.texts import corpus_texts, drills, prompts
from ropebench.plan import length_of, make_plan
from ropebench.record import Json, digest
from ropebench.store import Writer
from ropebench.sweep import Sweep

SHORT = 1024  # tokens of a prompt, where the window is longer
LONG = 2048  # of a prompt whose scores are looked at
LEAST = 16
SCORED = 5  # prompts: the fewest that an interval is made from

Say = Callable[[str], None]


def spectrum(options: Namespace, argv: Sequence[str], say: Say) -> Json:
    """Measure a model's spectrum and store it. Raises UsageError."""
    from ropebench.model import card, find, load, load_tokenizer
    from ropebench.prompt import Encoder

    if not options.model:
        raise UsageError("no model: give --model NAME (see ropebench list models), a folder, or a hub id")
    if options.n < 1 or options.random < 0:
        raise UsageError(f"--n {options.n} and --random {options.random}: allowed: --n from 1, --random from 0")
    spec = find(options.model, options.models, options.revision)
    given = None if options.trained_length is None else length_of(options.trained_length)
    window = card(spec, given, bool(options.offline), bool(options.trust_remote_code)).geometry.trained_length
    length = min(window, SHORT) if options.length is None else length_of(options.length)
    methods = tuple(word.strip() for word in (options.methods or "").split(",") if word.strip())
    target = max(2 * window, length) if options.target is None else length_of(options.target)
    long = min(target, LONG) if options.score_length is None else length_of(options.score_length)
    if min(length, long) < LEAST:
        raise UsageError(f"prompts of {min(length, long)} tokens are too short to be looked at; the least is {LEAST}")
    plan = make_plan(
        Sweep(
            options.model, methods, ("proofpile",), (length,), None if options.factor else target, False,
            options.factor, trained_length=given, revision=options.revision, models=options.models,
            device=options.device, dtype=options.dtype, attention=options.attention, bos=options.bos,
            offline=bool(options.offline), trust_remote_code=bool(options.trust_remote_code),
            plugins=tuple(options.plugins or ()),
        ),
        corpora=False,
    )  # fmt: skip
    for note in plan.notes:
        say(f"note: {note}")
    first = plan.cells[0]
    encoder = Encoder(load_tokenizer(first.card, first.trust_remote_code), options.bos)
    corpora = _apart(_corpora(options))
    domains = {corpus.label: prompts(corpus, encoder, options.n, length) for corpus in corpora}
    scored = len(plan.cells) > 1 or options.score_length is not None
    few = prompts(corpora[0], encoder, min(options.n, SCORED), long) if scored else []
    writer = Writer(options.results)
    loaded = load(first.card, first.device, first.dtype, first.attention, first.trust_remote_code)

    from ropebench.lens.looking import band_scores, random_weights, spectra

    found = spectra(loaded.model, plan.cells, domains, say)
    found["scores"] = (
        {"domain": corpora[0].label, **band_scores(loaded.model, plan.cells, few, say)} if scored else None
    )
    model = model_of(loaded)
    found["random"] = None
    if options.random:
        rows = domains[corpora[0].label][:SCORED]
        found["random"] = {
            "domain": corpora[0].label,
            **random_weights(
                first.card.config, loaded.attention, rows, options.random, options.seed, loaded.device, say
            ),
        }
    about = {"n": options.n, "length": length, "domains": [corpus.describe() for corpus in corpora]}
    tables = [[row["label"], digest([f"{f:.6e}" for f in row["inv_freq"]]), row["attention_factor"]]
              for row in found["tables"]]  # fmt: skip
    identity = {
        "model": {key: model[key] for key in ("id", "revision", "dtype", "attention", "trained_length")},
        "tables": tables,
        "domains": [[corpus.label, corpus.identity] for corpus in corpora],
        "n": options.n,
        "length": length,
        "score_length": long if scored else None,
        "random": [options.random, options.seed if options.random else None],
        "bos": options.bos,
    }
    record = lens_record("spectrum", identity, {**about, **found}, writer.run_id, argv, loaded.device, model)
    writer.record(record)
    return record


def _apart(corpora: Sequence[Corpus]) -> list[Corpus]:
    labels = [corpus.label for corpus in corpora]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise UsageError(f"--docs: two domains are called {twice[0]!r}; write NAME=FOLDER to tell them apart")
    return list(corpora)


def dependence(options: Namespace, argv: Sequence[str], say: Say) -> list[Json]:
    """Measure the dependence of each corpus and task on distance and store a record for each. Raises UsageError."""
    if not 2 <= options.classes <= 64:
        raise UsageError(f"--classes {options.classes}: allowed: 2 to 64")
    if not 0 < options.share < 1:
        raise UsageError(f"--share {options.share}: must be above 0 and below 1, such as 0.9")
    if options.samples < 1:
        raise UsageError(f"--samples {options.samples}: must be at least 1")
    sizes = None if options.vocabularies is None else [length_of(word) for word in options.vocabularies.split(",")]
    distance = length_of(options.distance)
    sources = _sources(options)
    spec = _model(options) if options.model else None
    ways = None if spec is None else (spec[0].id, spec[1].text)
    plans = []
    for source in sources:
        found, notes = granularities(source, sizes, options.classes, ways)
        for note in notes:
            say(f"note: {note}")
        reaches(found, distance)  # all that can be wrong is said before the work
        plans.append(found)
    rows = [_prompts(source, *spec) if spec else [] for source in sources]
    writer, records, loaded = Writer(options.results), [], None
    for source, found, own in zip(sources, plans, rows, strict=True):
        values = dependence_of(source, found, distance, options.share, options.seed, say)
        values["beside"] = None
        if spec is not None:
            from ropebench.model import load

            loaded = loaded or load(spec[0], "auto", "auto", "auto")
            name = f"tokens of {spec[0].id}"
            row = next(one for one in values["granularities"] if one["name"] == name)
            values["beside"] = beside_model(row, _theta_eff(loaded.model, own))
        how = {"distance": distance, "classes": options.classes, "share": options.share, "seed": options.seed,
               "granularities": [one["name"] for one in values["granularities"]],
               "model": None if loaded is None else loaded.card.revision}  # fmt: skip
        record = lens_record(
            "dependence", identity_of(source, **how), {"distance": distance, "seed": options.seed, **values},
            writer.run_id, argv, "cpu" if loaded is None else loaded.device,
            None if loaded is None else model_of(loaded),
        )  # fmt: skip
        writer.record(record)
        records.append(record)
    return records


def _sources(options: Namespace) -> list[Source]:
    most = length_of(options.most_bytes)
    docs = [Source(corpus.label, {"kind": "corpus", **corpus.describe()}, corpus_texts(corpus, most))
            for corpus in _apart(_docs(options))]  # fmt: skip
    return docs + _tasks(options)


def _docs(options: Namespace) -> list[Corpus]:
    words = options.docs or ([] if options.tasks else ["installed"])
    return [open_corpus(word, bool(options.offline)) for word in words]


def _tasks(options: Namespace) -> list[Source]:
    """The drills of every task that was named, as texts."""
    from ropebench.registry import Registry

    found = []
    for word in options.tasks.split(",") if options.tasks else []:
        registry = Registry.load(options.plugins or ())
        for name in registry.expanded("task", word.strip()):
            task, entry = registry.build("task", name)
            label = f"{task.name}:{task.variant_name()}".strip(":")
            about = {"kind": "task", "name": task.name, "version": task.version, "params": task.params,
                     "code": entry.code, "samples": options.samples}  # fmt: skip
            found.append(Source(label, about, drills(task, options.samples, options.seed)))
    return found


def _corpora(options: Namespace) -> list[Corpus]:
    """The texts that a model is looked at on: documents, and drills as documents of their own."""
    made = []
    for source in _tasks(options):
        pages = [Document(f"{source.label} {page}", text) for page, text in enumerate(source.texts)]
        about = f"{options.samples} drills of task {source.label} version {source.about['version']}"
        made.append(Corpus(source.label, about, pages.__iter__, identity=digest(source.texts)))
    return _docs(options) + made


def _model(options: Namespace) -> tuple[Any, Any]:
    """The card and the encoder of the model that is looked at beside a corpus."""
    from ropebench.model import card, find, load_tokenizer
    from ropebench.prompt import Encoder

    given = None if options.trained_length is None else length_of(options.trained_length)
    found = card(find(options.model, options.models, options.revision), given, bool(options.offline))
    return found, Encoder(load_tokenizer(found), "auto")


def _prompts(source: Source, card: Any, encoder: Any, n: int = 8) -> list[tuple[int, ...]]:
    """Prompts of the source's text, of the model's window (at most 512 tokens)."""
    whole = Corpus(source.label, "", lambda: iter([Document(source.label, "".join(source.texts))]))
    return prompts(whole, encoder, n, min(card.geometry.trained_length, 512))


def _theta_eff(model: Any, rows: Sequence[Sequence[int]]) -> Json:
    """The model's effective frequency on prompts, with its interval over them."""
    import numpy as np

    from ropebench.apply import live
    from ropebench.lens.spectrum import effective_frequency, energies, shares
    from ropebench.lens.watching import pair_channels
    from ropebench.stats import exponential, interval

    channels, inv_freq = pair_channels(model), live(model).inv_freq
    logs = [float(np.log(effective_frequency(shares(energies(model, ids, channels)), inv_freq))) for ids in rows]
    return ends(exponential(interval(logs, share=False)))
