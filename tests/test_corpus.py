"""Where text comes from: installed documentation, folders, corpora known by name, the hub.

Nothing here was fetched live: the hub's two download functions are replaced by ones that hand out local files of the
same layout.
"""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ropebench import corpus as module
from ropebench.corpus import NOISE, PROOFPILE, Corpus, Document, known_corpora, open_corpus
from ropebench.errors import UsageError

HUB = Path(__file__).with_name("data") / "hub"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def folder(path: Path, **files: str | bytes) -> Path:
    """A folder with files; `a_tex="…"` becomes a.tex."""
    path.mkdir(exist_ok=True)
    for name, content in files.items():
        file = path / ".".join(name.rsplit("_", 1))
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def names(corpus: Corpus) -> list[str]:
    return [document.name for document in corpus.documents()]


# Installed and noise


def test_installed_is_the_manual_of_this_python() -> None:
    first, again = open_corpus("installed"), open_corpus("installed")
    assert first.label == f"python-docs-{platform.python_version()}"
    assert first.identity == again.identity
    (document,) = first.documents()
    assert list(again.documents()) == [document]
    assert document.text.isprintable() or "\n" in document.text
    assert len(document.text) > 200_000
    assert "assert" in document.text


def test_noise_is_the_line_of_the_passkey_papers() -> None:
    noise = open_corpus("noise")
    assert noise.label == "noise"
    assert [document.text for document in noise.documents()] == [NOISE]
    assert len(NOISE) == 89


@pytest.mark.parametrize("word", ["installed", "noise"])
def test_what_a_record_says_of_a_corpus_is_json_without_a_path(word: str, tmp_path: Path) -> None:
    about = open_corpus(word).describe()
    assert json.loads(json.dumps(about)) == about
    assert set(about) == {"label", "source", "revision", "licence", "identity"}
    assert "/" not in json.dumps(open_corpus(str(folder(tmp_path / "mine", a_txt="x"))).describe())


# Folders


def test_a_folder_is_its_documents_by_name(tmp_path: Path) -> None:
    rows = json.dumps({"text": "row one", "meta": {"k": 1}}) + "\n\n" + json.dumps({"input_ids": [3, 1, 2]}) + "\n"
    path = folder(tmp_path / "mine", b_md="two", a_txt="one", d_tex="three", c_jsonl=rows, e_pdf="no", z_TXT="last")
    corpus = open_corpus(str(path))
    assert corpus.label == "mine"
    assert list(corpus.documents()) == [
        Document("a.txt", "one"),
        Document("b.md", "two"),
        Document("c.jsonl:1", "row one"),
        Document("c.jsonl:3", ids=(3, 1, 2)),
        Document("d.tex", "three"),
        Document("z.TXT", "last"),
    ]
    assert names(corpus) == names(corpus)


def test_what_is_about_the_folder_or_hidden_or_below_is_left_out(tmp_path: Path) -> None:
    path = folder(tmp_path / "mine", a_txt="one", README_md="no", COPYING_txt="no", License_md="no", notice_txt="no")
    folder(path / "sub", b_txt="no")
    (path / ".hidden.txt").write_text("no")
    (path / "._a.txt").write_text("no")
    (path / "folder.txt").mkdir()
    assert names(open_corpus(str(path))) == ["a.txt"]


def test_the_identity_is_that_of_names_and_contents(tmp_path: Path) -> None:
    one, same, other, renamed = (
        open_corpus(f"mine={folder(tmp_path / str(i), **files)}")
        for i, files in enumerate([{"a_txt": "one"}, {"a_txt": "one"}, {"a_txt": "two"}, {"b_txt": "one"}])
    )
    assert one.label == other.label == "mine"
    assert one.identity == same.identity
    assert len({one.identity, other.identity, renamed.identity}) == 3


def test_a_path_with_an_equals_sign_is_a_path(tmp_path: Path) -> None:
    path = folder(tmp_path / "depth=3", a_txt="one")
    assert open_corpus(str(path)).label == "depth=3"
    assert open_corpus(f"mine={path}").label == "mine"


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = folder(tmp_path / "mine", a_txt=b"\xef\xbb\xbfone", b_jsonl=b'\xef\xbb\xbf{"text": "two"}')
    assert [document.text for document in open_corpus(str(path)).documents()] == ["one", "two"]


@pytest.mark.parametrize(
    "word", ["instaled", "/no/such/folder", "mine=/no/such", "", "=", "a\0b", "x" * 5000, "~nobody/x"]
)
def test_a_folder_that_is_not_there_is_said_with_what_is_allowed(word: str) -> None:
    near = r"did you mean 'installed'\? " if word == "instaled" else ""
    with pytest.raises(
        UsageError, match=rf"no such folder; {near}allowed: a folder with .*'installed', 'noise', or hub:"
    ):
        open_corpus(word)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    path = folder(tmp_path / "mine", README_md="no", a_pdf="no")
    folder(path / "sub", b_txt="no")
    with pytest.raises(UsageError, match=r"folder 'mine' holds no \*.txt, .* \(subfolders are not read\)"):
        open_corpus(str(path))


def test_an_unreadable_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path / "mine", a_txt="one")

    def denied(self: Path) -> Any:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", denied)
    with pytest.raises(UsageError, match="cannot read folder 'mine': Permission denied"):
        open_corpus(str(path))


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    path = folder(tmp_path / "mine", a_txt="one")
    (path / "b.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"--docs: cannot read b\.txt: No such file"):
        open_corpus(str(path))


def test_a_file_that_goes_away_is_named(tmp_path: Path) -> None:
    path = folder(tmp_path / "mine", a_txt="one", b_txt="two")
    corpus = open_corpus(str(path))
    (path / "b.txt").unlink()
    with pytest.raises(UsageError, match=r"--docs: cannot read b\.txt: No such file"):
        list(corpus.documents())


@pytest.mark.parametrize(
    "name, content, says",
    [
        ("a_txt", "Größe".encode("latin-1"), r"a\.txt is not UTF-8 .*; convert it"),
        ("a_jsonl", b'{"text": "\xff"}\n', r"a\.jsonl is not UTF-8"),
        ("a_jsonl", '{"text": "one"}\n{"text": \n', r"a\.jsonl:2: not JSON"),
        ("a_jsonl", '{"body": "one"}\n', r"a\.jsonl:1: a document needs a field 'text'"),
        ("a_jsonl", '["one"]\n', r"a\.jsonl:1: a document needs a field 'text'"),
        ("a_jsonl", '{"text": 3}\n', r"a\.jsonl:1: a document needs a field 'text'"),
        ("a_jsonl", '{"input_ids": [1, "2"]}\n', r"a\.jsonl:1: a document needs"),
        ("a_jsonl", '{"input_ids": [1, -2]}\n', r"a\.jsonl:1: a document needs"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_named(
    tmp_path: Path, name: str, content: str | bytes, says: str
) -> None:
    corpus = open_corpus(str(folder(tmp_path / "mine", **{name: content})))
    with pytest.raises(UsageError, match=says):
        list(corpus.documents())


def test_a_row_with_text_and_ids_is_read_as_text(tmp_path: Path) -> None:
    path = folder(tmp_path / "mine", a_jsonl='{"text": "one", "input_ids": [1], "meta": {}}')
    assert list(open_corpus(str(path)).documents()) == [Document("a.jsonl:1", "one")]


def test_a_long_jsonl_is_read_line_by_line(tmp_path: Path) -> None:
    path = folder(tmp_path / "mine", a_jsonl='{"text": "one"}\nthis line is never reached\n')
    assert next(open_corpus(str(path)).documents()).text == "one"


# Corpora known by name


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Two files that a name stands for."""
    digests = {
        "a.tex": "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed",  # "one"
        "b.tex": "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3",  # "two"
    }
    about = {"source": "example.org/book", "revision": "abcdef0123456789", "licence": "GFDL-1.2", "sha256": digests}
    monkeypatch.setattr(module, "known_corpora", lambda: {"book": about})
    return about


def test_a_known_name_adds_source_and_licence(tmp_path: Path, known: dict[str, Any]) -> None:
    corpus = open_corpus(f"book={folder(tmp_path / 'here', a_tex='one', b_tex='two')}")
    assert corpus.label == "book@abcdef01"
    assert (corpus.source, corpus.revision, corpus.licence) == (known["source"], known["revision"], "GFDL-1.2")
    assert names(corpus) == ["a.tex", "b.tex"]


def test_a_known_name_is_exactly_its_files(tmp_path: Path, known: dict[str, Any]) -> None:
    plain = open_corpus(f"book={folder(tmp_path / 'here', a_tex='one', b_tex='two')}")
    clone = open_corpus(f"book={folder(tmp_path / 'clone', a_tex='one', b_tex='two', aa_tex='more', c_txt='more')}")
    assert names(clone) == names(plain)
    assert clone.identity == plain.identity


def test_a_changed_or_missing_file_is_refused_by_name(tmp_path: Path, known: dict[str, Any]) -> None:
    with pytest.raises(
        UsageError, match=r"--docs book=FOLDER: b\.tex is another file \(revision abcdef.*fetch example"
    ):
        open_corpus(f"book={folder(tmp_path / 'changed', a_tex='one', b_tex='two!')}")
    with pytest.raises(UsageError, match=r"a\.tex is missing, b\.tex is missing"):
        open_corpus(f"book={folder(tmp_path / 'missing', c_tex='one')}")


def test_a_folder_that_happens_to_have_a_known_name_is_an_ordinary_one(tmp_path: Path, known: dict[str, Any]) -> None:
    assert open_corpus(str(folder(tmp_path / "book", a_tex="other"))).label == "book"


def test_the_corpora_that_ship_are_complete() -> None:
    for about in known_corpora().values():
        assert about["source"]
        assert about["licence"]
        assert len(about["revision"]) == 40
        assert all(len(digest) == 64 for digest in about["sha256"].values())


# The hub (not fetched live)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache with both layouts of the Proof-pile test set; the two download functions look there only."""
    root = tmp_path / "hub"
    raw = root / "datasets--dwzhu--PoSE-Datasets" / "snapshots" / COMMIT
    shutil.copytree(HUB / "dwzhu" / "PoSE-Datasets", raw)
    for name, split in (("proofpile-test-tokenized", "test"), ("proofpile-test-tokenized-mistral", "train")):
        ready = root / f"datasets--emozilla--{name}" / "snapshots" / COMMIT
        (ready / "data").mkdir(parents=True)
        (ready / "README.md").write_text(f"# {name}\n")
        rows = [[0, 5, 6, 7], [0, 8, 9]]
        table = {
            "input_ids": pa.array(rows, pa.list_(pa.int32())),
            "attention_mask": pa.array([[1] * len(row) for row in rows], pa.list_(pa.int8())),
            "tokenized_len": pa.array([len(row) for row in rows], pa.int64()),
        }
        pq.write_table(pa.table(table), ready / "data" / f"{split}-00000-of-00001-af3c14b3d1b1c3f9.parquet")

    def found(repo: str, revision: str | None) -> Path:
        path = root / f"datasets--{repo.replace('/', '--')}" / "snapshots" / COMMIT
        if not path.is_dir() or revision not in (None, "main", COMMIT):
            raise ConnectionError(f"no answer for {repo} at {revision}")
        return path

    def one_file(repo: str, file: str, *, repo_type: str, revision: str | None, local_files_only: bool) -> str:
        assert repo_type == "dataset"
        path = found(repo, revision) / file
        if not path.is_file():
            raise FileNotFoundError(2, f"404: {file}")
        return str(path)

    def snapshot(repo: str, *, repo_type: str, revision: str | None, local_files_only: bool) -> str:
        assert repo_type == "dataset"
        return str(found(repo, revision))

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", one_file)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    return root


def test_raw_documents_of_the_hub(hub: Path) -> None:
    """Layout of dwzhu/PoSE-Datasets, proof-pile/test.jsonl; not fetched live."""
    corpus = open_corpus(PROOFPILE)
    assert corpus.label == "dwzhu/PoSE-Datasets/proof-pile/test@01234567"
    assert (corpus.source, corpus.revision) == (PROOFPILE, COMMIT)
    assert COMMIT in corpus.identity
    texts = [document.text for document in corpus.documents()]
    assert len(texts) == 3
    assert texts[0].startswith("A short note.")
    assert "ℚ ⊂ ℝ ⊂ ℂ" in texts[2]
    assert open_corpus(f"{PROOFPILE}@{COMMIT}", offline=True).identity == corpus.identity


@pytest.mark.parametrize("name", ["proofpile-test-tokenized", "proofpile-test-tokenized-mistral"])
def test_pre_tokenised_documents_of_the_hub(hub: Path, name: str) -> None:
    """Layouts of emozilla's tokenised sets: split test, and split train; not fetched live."""
    corpus = open_corpus(f"hub:emozilla/{name}")
    assert corpus.label == f"emozilla/{name}@01234567"
    assert [document.ids for document in corpus.documents()] == [(0, 5, 6, 7), (0, 8, 9)]
    assert corpus.revision == COMMIT


@pytest.mark.parametrize("word", ["hub:nobody/nothing", "hub:dwzhu/PoSE-Datasets/other.jsonl", f"{PROOFPILE}@v2"])
def test_a_hub_that_does_not_answer_is_an_error_that_names_the_alternative(hub: Path, word: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be read from the hub .*; use --docs installed .* or --docs FOLDER"):
        open_corpus(word)


def test_without_a_network_the_hub_is_not_replaced_silently() -> None:
    with pytest.raises(UsageError, match=r"cannot be read from the hub .*; use --docs installed"):
        open_corpus(PROOFPILE, offline=True)


def test_a_bad_line_of_a_hub_file_is_named(hub: Path) -> None:
    with next(hub.glob("**/test.jsonl")).open("a") as handle:
        handle.write('{"meta": {}}\n')
    with pytest.raises(
        UsageError, match=r"dwzhu/PoSE-Datasets/proof-pile/test\.jsonl:4: a document needs a field 'text'"
    ):
        list(open_corpus(PROOFPILE).documents())


@pytest.mark.parametrize("word", ["hub:", "hub:one", "hub:a/b/c.txt", "hub:a/../b/c.jsonl", "hub:a b/c", "hub:a/b/"])
def test_a_hub_word_of_another_form_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match=r"write hub:OWNER/NAME, hub:OWNER/NAME/FILE\.jsonl, with @REVISION"):
        open_corpus(word)


def test_hashes_of_documents() -> None:
    assert Document("a", "text").sha256 == Document("b", "text").sha256 != Document("a", "Text").sha256
    assert Document("a", ids=(1, 23)).sha256 != Document("a", ids=(12, 3)).sha256
