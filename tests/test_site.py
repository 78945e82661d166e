"""leaderboard/index.html as text: one file, the same bytes each time, nothing in it that is run or fetched but ours.

What only a browser can tell is in test_site_browser.py (`make site-check`).
"""

from __future__ import annotations

import base64
import json
import re
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ropebench.report import leaderboard

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "bench" / "ropebench" / "report" / "page"

EVIL = '</script><script>alert(1)</script><img src=x onerror=alert(2)>"\' onmouseover="alert(3)'


pytestmark = pytest.mark.usefixtures("no_drawing")


def build(records, samples, folder) -> str:
    leaderboard.build(records, samples, folder)
    return (folder / "index.html").read_text(encoding="utf-8")


class Reader(HTMLParser):
    """Tags with their attributes, and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        (self.scripts if self.tags and self.tags[-1][0] == "script" else self.words).append(data)


def test_the_same_records_give_the_same_bytes_and_check_sees_every_change(records, samples, tmp_path):
    first = build(records, samples, tmp_path / "a")
    assert build(list(reversed(records)), samples, tmp_path / "b") == first
    assert leaderboard.check(records, samples, tmp_path / "a") == []
    (tmp_path / "a" / "index.html").write_text(first.replace("Summary", "Results", 1), encoding="utf-8")
    assert leaderboard.check(records, samples, tmp_path / "a") == ["index.html"]
    plot = next((tmp_path / "b").glob("*.png"))
    plot.write_bytes(b"another")
    assert leaderboard.check(records, samples, tmp_path / "b") == ["index.html"]


def test_it_fetches_nothing_and_runs_only_our_script(records, samples, tmp_path):
    text = build(records, samples, tmp_path)
    page = Reader(text)
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "action", "srcset"):
            assert (attributes.get(name) or "data:").startswith(("data:", "#"))
    assert "url(" not in text.split("</style>")[0]
    assert "@import" not in text
    script = "".join(part for part in page.scripts if "Tablesort" in part)
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a)
    assert f"'sha256-{base64.b64encode(sha256(script.encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "script-src 'unsafe" not in policy
    assert "</script" not in script


def test_the_answer_comes_first_in_the_words_of_the_readme(records, samples, tmp_path):
    text = build(records, samples, tmp_path)
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    order = [text.index(f'id="{part}"') for part in ("summary", "numbers", "results", "limits", "provenance")]
    assert order == sorted(order)
    words = " ".join(" ".join(Reader(text).words).split())
    for line in readme.splitlines():
        if line.startswith("- "):
            assert plain(line[2:]) in words, line
        elif line.startswith("| "):  # a row of a table
            assert plain(" ".join(re.split(r"(?<!\\)\|", line))) in words, line
    assert sum(line.startswith(("- ", "| ")) for line in readme.splitlines()) > 40
    assert readme.count("![") == text.count("<img ")


def plain(line: str) -> str:
    """A line of the README without Markdown's escapes."""
    line = line.replace("\\", "").replace("`", "")
    for mark, sign in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        line = line.replace(mark, sign)
    return " ".join(line.split())


def test_every_number_tells_its_interval_n_and_origin(records, samples, tmp_path):
    page = Reader(build(records, samples, tmp_path))
    about = json.loads(next(part for part in page.scripts if part.startswith("{")))
    buttons = [a["data-cell"] for tag, a in page.tags if tag == "button" and "data-cell" in a]
    assert set(buttons) == set(about) == {record["cell_id"] for record in records}
    for record in records:
        facts = dict(about[record["cell_id"]])
        assert record["record_id"] in facts["record"]
        assert record["cell_id"] in facts["cell"]
        shown = record["outcome"]["metrics"].get(record["outcome"]["primary"]) or {"n": 0}
        assert facts["n"].startswith(f"{shown['n']} samples")
        assert facts["measured by"].startswith(("commit", "no commit"))
        assert record["outcome"]["status"] in facts["status"]
    failed = [record for record in records if record["outcome"]["status"] == "out_of_memory"]
    assert failed
    assert all("out_of_memory" in dict(about[one["cell_id"]])["value"] for one in failed)


def test_names_that_are_code_stay_text(records, samples, tmp_path):
    for record in records:
        record["model"]["id"] = EVIL
        record["task"]["label"] += EVIL
        record["method"]["label"] += EVIL
        record["provenance"]["argv"] = ["ropebench", EVIL]
        record["provenance"]["device"] = EVIL
        record["task"]["scorer"] = EVIL
    harmless = [dict(record) for record in records]
    page = Reader(build(harmless, samples, tmp_path))
    assert len([tag for tag, _ in page.tags if tag == "script"]) == 2
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert {a["src"].split(",")[0] for tag, a in page.tags if tag == "img"} <= {"data:image/png;base64"}
    about = json.loads(next(part for part in page.scripts if part.startswith("{")))
    assert all(EVIL in dict(facts)["task"] for facts in about.values())


def test_the_table_library_is_the_published_one_with_its_licence():
    """npm's tablesort 5.7.1, dist/tablesort.min.js, dist/sorts/tablesort.number.min.js and LICENCE."""
    hashes = {
        "tablesort.min.js": "ee99f17ebc985170899a004e9f6bf09e7f60eb4b459b6bfe6683cf0140352c63",
        "tablesort.number.min.js": "e25dad08c53361182db670d0f670e85eea0f57e5d3bad0439831c75e1842096c",
        "tablesort.LICENCE": "6ba5a8c71b9ab70f3f6247d8ec968b4a1e3767a52ff1dea41ff4bf6bcf02a9a8",
    }
    assert {name: sha256((PAGE / name).read_bytes()).hexdigest() for name in hashes} == hashes
    assert "page/*.LICENCE" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_stored_page_is_small():
    assert (ROOT / "leaderboard" / "index.html").stat().st_size < 3_000_000


def test_the_page_names_every_choice_once(records, samples, tmp_path):
    text = build(records, samples, tmp_path)
    for name, given in (("task", {r["task"]["label"] for r in records}),
                        ("length", {str(r["condition"]["length"]) for r in records})):  # fmt: skip
        part = re.search(rf'<select name="{name}">(.*?)</select>', text, re.DOTALL)
        values = re.findall(r'<option value="([^"]+)"', part.group(1))
        assert sorted(values) == sorted(given)
