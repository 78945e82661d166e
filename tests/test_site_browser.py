"""The leaderboard's page in a real browser: sorting, filters, details, phone width, no network, no complaint.

`make site-check`; not run where there is no Chromium. ROPEBENCH_SCREENSHOTS=DIR keeps screenshots and the printed page.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import Browser, found
from ropebench import store
from ropebench.report import leaderboard
from ropebench.report.cells import samples_by_cell

RESULTS = Path(__file__).parents[1] / "results"
pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(found() is None, reason="not run: no browser (Debian: apt install chromium)"),
]
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    records = store.newest_ok(store.read(RESULTS))
    folder = tmp_path_factory.mktemp("board")
    leaderboard.build(records, samples_by_cell(records, store.samples(RESULTS)), folder)
    return folder / "index.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = found()
    assert program is not None
    with Browser(program) as one:
        yield one


@pytest.fixture(params=SIZES)
def at(request, page, browser) -> tuple[str, Browser]:
    browser.errors.clear()
    browser.asked.clear()
    browser.open(page, *SIZES[request.param])
    return request.param, browser


def keep(browser: Browser, name: str, whole: bool = False) -> None:
    folder = os.environ.get("ROPEBENCH_SCREENSHOTS")
    if folder:
        browser.picture(Path(folder) / f"{name}.png", whole)


ROWS = "[...document.querySelectorAll('#cells tbody tr')].filter(r => !r.hidden)"


def column(browser: Browser, place: int) -> list[str]:
    return browser.js(f"{ROWS}.map(r => r.cells[{place}].textContent.trim())")


def test_it_loads_quietly_from_a_file_and_fits_the_window(at):
    name, browser = at
    keep(browser, f"{name}-top")
    if name == "desktop":
        keep(browser, f"{name}-whole", whole=True)
    assert browser.errors == []
    assert [url for url in browser.asked if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in browser.asked if url.startswith("file:")]) == 1  # the page itself
    assert browser.js("document.documentElement.scrollWidth <= innerWidth")
    assert browser.js("[...document.images].length > 3 && [...document.images].every(i => i.naturalWidth > 0)")
    # The answer stands at the top, before any other table.
    assert browser.js("document.querySelector('h2').textContent") == "Summary"
    assert browser.js("document.querySelector('section table').textContent.includes('take')") or name == "phone"
    top = browser.js("document.querySelector('section table').getBoundingClientRect().top")
    assert top < SIZES[name][1]


def test_a_click_sorts_numbers_as_numbers_and_another_turns_them_round(at):
    name, browser = at
    head = "#cells th:nth-child(3)"
    browser.click(head)
    rising = [int(text) for text in column(browser, 2)]
    browser.click(head)
    falling = [int(text) for text in column(browser, 2)]
    assert len(set(rising)) > 2
    assert (rising, falling) == (sorted(rising), sorted(rising, reverse=True))
    assert browser.js(f"document.querySelector('{head}').getAttribute('aria-sort')") == "descending"
    browser.js("document.querySelector('#cells th:nth-child(5)').focus()")
    browser.key("Enter")
    names = [text.lower() for text in column(browser, 4)]
    assert names == sorted(names)
    keep(browser, f"{name}-sorted")
    assert browser.errors == []


def choose(browser: Browser, name: str, value: str) -> None:
    browser.js(
        f"(s => {{ s.value = {value!r}; s.dispatchEvent(new Event('change', {{bubbles: true}})) }})"
        f"(document.querySelector('select[name={name}]'))"
    )


def test_filters_take_rows_sections_and_columns_away_and_bring_them_back(at):
    name, browser = at
    every = len(column(browser, 0))
    task = browser.js("document.querySelector('select[name=task]').options[1].value")
    choose(browser, "task", task)
    assert set(column(browser, 1)) == {task}
    seen = "[...document.querySelectorAll('section[data-task]')].filter(s => !s.hidden).map(s => s.dataset.task)"
    assert set(browser.js(seen)) == {task}
    choose(browser, "length", "8192")
    assert set(column(browser, 2)) == {"8192"}
    heads = "[...document.querySelectorAll('section:not([hidden]) th[data-length]')].filter(t => !t.hidden)"
    assert set(browser.js(f"{heads}.map(t => t.dataset.length)")) == {"8192"}
    choose(browser, "method", "yarn×2")
    assert column(browser, 4) == ["yarn×2"]
    assert browser.js("document.querySelector('#count').textContent") == f"1 of {every} cells shown"
    browser.middle("#count")
    keep(browser, f"{name}-filtered")
    choose(browser, "model", "smollm2-135m")
    browser.click("#filters button[type=reset]")
    assert browser.js("new Promise(done => setTimeout(() => done(document.querySelector('#count').textContent), 50))")
    assert len(column(browser, 0)) == every
    assert browser.errors == []


SHOWN = "document.querySelector('#tip').hidden ? '' : document.querySelector('#tip').textContent"


def test_a_number_tells_its_interval_n_and_origin(at):
    name, browser = at
    wanted = ("95 %", "samples", "commit", "torch", "record", "ropebench show", "corpus")
    button = "#cells tbody tr:nth-child(2) button.v"
    if name == "phone":
        browser.tap(button)
    else:
        browser.point(button)
    text = browser.wait(SHOWN)
    assert [word for word in wanted if word not in text] == []
    box = browser.js(
        "(r => [r.left, r.top, r.right, r.bottom])(document.querySelector('#tip').getBoundingClientRect())"
    )
    width, height = SIZES[name]
    assert box[0] >= 0
    assert box[1] >= 0
    assert box[2] <= width
    assert box[3] <= height
    keep(browser, f"{name}-details")
    browser.key("Escape")
    assert browser.js(SHOWN) == ""
    # By keyboard alone, in a table of results too.
    browser.js("document.querySelector('section[data-task] button.v').focus({focusVisible: true})")
    first = browser.js(SHOWN)
    browser.key("Tab")
    assert first
    assert browser.js(SHOWN)
    assert browser.js(SHOWN) != first
    assert browser.errors == []


def test_it_can_be_read_in_the_dark_and_on_paper(browser, page, tmp_path):
    browser.errors.clear()
    browser.open(page, *SIZES["desktop"], dark=True)
    keep(browser, "dark-top")
    paper, ink = browser.js("(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))")
    assert sum(map(int, paper[4:-1].split(","))) < 150 < 600 < sum(map(int, ink[4:-1].split(",")))
    file = Path(os.environ.get("ROPEBENCH_SCREENSHOTS", tmp_path)) / "printed.pdf"
    browser.pdf(file)
    assert file.read_bytes().startswith(b"%PDF-")
    browser("Emulation.setEmulatedMedia", media="print")
    assert browser.js("getComputedStyle(document.querySelector('form')).display") == "none"
    browser("Emulation.setEmulatedMedia", media="")


EVIL = '</script><script>window.broken=1</script><img src=x onerror=window.broken=2>"\' onmouseover="window.broken=3'


def test_names_that_are_code_do_nothing(browser, records, samples, tmp_path):
    for record in records:
        record["model"]["id"] = EVIL
        record["task"]["label"] += EVIL
        record["method"]["label"] += EVIL
        record["provenance"]["argv"] = ["ropebench", EVIL]
        record["provenance"]["device"] = EVIL
        record["task"]["scorer"] = EVIL
    leaderboard.build(records, samples, tmp_path)
    browser.errors.clear()
    browser.asked.clear()
    browser.open(tmp_path / "index.html", *SIZES["desktop"])
    for place in range(1, 4):
        browser.point(f"#cells tbody tr:nth-child({place}) button.v")
    assert "onerror" in browser.js(SHOWN)  # it is there, as text
    assert browser.js("typeof window.broken") == "undefined"
    assert browser.js("document.scripts.length") == 2
    assert browser.js("[...document.querySelectorAll('[onmouseover], [onerror]')].length") == 0
    assert [url for url in browser.asked if not url.startswith(("file:", "data:"))] == []
    assert browser.errors == []
