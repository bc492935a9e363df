"""The lab's pages: the server draws what the sliders say, alone and in the console."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, expect

from sfumato.dp.refusal import Refused
from sfumato.lab.exhibits import EXHIBITS, MAX_SEEDS, exhibit
from support.browser import Watched, bring
from support.process_tree import waited
from support.served_vault import Service

COMMAND = "import sys; from sfumato.app.command_line import main; sys.exit(main())"


@pytest.fixture(scope="module")
def lab() -> Iterator[str]:
    """Return the address of a running `sfumato lab`."""
    words = [sys.executable, "-c", COMMAND, "lab", "--port", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = re.search(r"http://localhost:\d+", process.stderr.readline())
        assert found is not None
        yield found[0]
        process.terminate()


def get(address: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(address, timeout=300) as reply:  # noqa: S310
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.mark.parametrize("name", [one.name for one in EXHIBITS])
def test_an_exhibit_says_the_same_in_page_sentence_table_and_picture(lab: str, name: str) -> None:
    shown = exhibit(name).shown(exhibit(name).places({}))
    status, page = get(f"{lab}/lab/{name}")
    assert status == 200
    assert shown.cells[-1][0] in page.decode()
    said = json.loads(get(f"{lab}/lab/{name}/live")[1])
    assert said["summary"] == shown.summary
    assert said["rows"] == [list(row) for row in shown.cells]
    if name in (
        "loo",
        "linkage",
        "membership",
        "reconstruction",
        "coins",
    ):  # their marks are explained
        assert re.match(r"Right: |One row per person|Line: ", said["notes"])
    assert said["notes"] in html.unescape(page.decode())
    status, svg = get(f"{lab}{said['picture']}&look=dark")
    assert status == 200
    root = ElementTree.fromstring(svg)  # noqa: S314  # our own
    assert root.tag.endswith("svg")
    assert not any("style" in element.attrib for element in root.iter())


@pytest.mark.parametrize(
    "query",
    ["people=99", "people=-1", "people=x", "people=1e9", "other=1", "seed=1000", "seed=-1",
     "people=%EF%BC%91", "seed=%3Cscript%3E"],
)  # fmt: skip
def test_no_slider_goes_where_it_has_no_place(lab: str, query: str) -> None:
    assert get(f"{lab}/lab/coins/live?{query}")[0] in (400, 422)
    assert get(f"{lab}/lab/coins?{query}")[0] in (400, 422)


def test_there_is_nothing_but_the_lab(lab: str) -> None:
    for path in ("/v1/hello", "/sign-in", "/data-sets", "/lab/nothing", "/healthz"):
        assert get(lab + path)[0] == 404, path
    assert get(lab + "/")[0] == 200
    assert get(f"{lab}/lab/coins/picture.svg?look=pink")[0] == 404
    assert get(f"{lab}/lab/coins/picture.svg?look=dark&width=9")[0] == 404


def test_who_asks_for_too_much_at_once_is_told_to_wait(lab: str) -> None:
    addresses = [f"{lab}/lab/reconstruction/live?counts=0&seed={seed}" for seed in range(500, 512)]
    with ThreadPoolExecutor(12) as threads:
        codes = sorted(code for code, _ in threads.map(get, addresses))
    assert codes[0] == 200
    assert set(codes) == {200, 429}
    assert get(addresses[0])[0] == 200


def test_the_lab_is_for_this_machine_only(lab: str) -> None:
    request = urllib.request.Request(lab + "/lab", headers={"Host": "evil.example"})  # noqa: S310
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=20)  # noqa: S310
    with refused.value as error:
        assert error.code == 400


def test_the_same_seed_draws_the_same_and_another_does_not() -> None:
    found = exhibit("coins")
    places = found.places({})
    assert found.shown(places, 3) == found.shown(places, 3)
    assert found.shown(places, 3).cells != found.shown(places, 4).cells
    with pytest.raises(Refused):
        found.shown(places, MAX_SEEDS)


def test_a_slider_moves_picture_sentence_and_table(browser: Browser, lab: str) -> None:
    with browser.new_context() as context:
        watched = Watched(context.new_page())
        watched.watch()
        page = watched.page
        page.goto(f"{lab}/lab/coins")
        caption = page.locator("figcaption")
        expect(caption).to_contain_text("3,000 respondents")
        before = page.locator("img").get_attribute("src")
        page.locator("#people").focus()
        page.keyboard.press("End")
        expect(caption).to_contain_text("100,000 respondents")
        expect(page.locator("[data-value=people]")).to_have_text("100,000")
        expect(page.locator("img")).not_to_have_attribute("src", before or "")
        expect(page.locator("img")).to_have_js_property("complete", True)
        assert page.locator("img").evaluate("image => image.naturalWidth") > 300
        page.click("text=Draw again")
        expect(page.locator("img")).to_have_attribute("src", re.compile("seed=1"))
        page.click("text=The numbers")
        expect(page.locator("table tbody tr").last).to_contain_text("100,000")
        assert watched.complaints == []


APART = """() => {
  const isSeen = (one) => one.textContent.trim() && one.getAttribute("opacity") !== "0";
  const texts = [...document.querySelectorAll("text")].filter(isSeen);
  const shown = document.querySelector("svg").getBoundingClientRect();
  const boxes = texts.map((one) => [one.textContent, one.getBoundingClientRect()]);
  const cut = ([, box]) => box.left < shown.left || box.right > shown.right;
  const beside = (a, b) => a.right <= b.left || b.right <= a.left;
  const meet = (a, b) => !beside(a, b) && a.top < b.bottom && b.top < a.bottom;
  return {
    count: boxes.length,
    cut: boxes.filter(cut).map(([said]) => said),
    meet: boxes.flatMap(([one, a], at) =>
      boxes.slice(at + 1).filter(([, b]) => meet(a, b)).map(([two]) => `${one} and ${two}`)),
  };
}"""


@pytest.mark.parametrize("width", ["wide", "narrow"])
def test_no_word_of_a_picture_is_cut_off_or_lies_on_another(
    browser: Browser, lab: str, width: str
) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        for one in EXHIBITS:
            page.goto(f"{lab}/lab/{one.name}/picture.svg?look=dark&width={width}")
            found = page.evaluate(APART)
            assert found["count"] > 4
            assert (found["cut"], found["meet"]) == ([], []), one.name


def test_a_telephone_gets_a_picture_that_fits(browser: Browser, lab: str) -> None:
    with browser.new_context(viewport={"width": 390, "height": 844}) as context:
        page = context.new_page()
        for one in EXHIBITS:
            page.goto(f"{lab}/lab/{one.name}")
            picture = page.locator("img")
            expect(picture).to_have_js_property("complete", True)
            assert "width=narrow" in picture.evaluate("image => image.currentSrc")
            assert picture.evaluate("image => image.naturalWidth") < 500
            assert picture.evaluate("image => image.getBoundingClientRect().right") <= 390
        page.goto(f"{lab}/lab/coins")
        page.locator("#people").focus()
        page.keyboard.press("End")
        expect(page.locator("figcaption")).to_contain_text("100,000 respondents")
        picture = page.locator("img")
        assert waited(lambda: "people=5" in picture.evaluate("image => image.currentSrc"))


def test_the_marks_of_a_picture_stand_out_on_a_dark_page(lab: str) -> None:
    for name in ("coins", "linkage", "trials"):
        for look, is_seen in (("light", True), ("dark", False)):
            svg = get(f"{lab}/lab/{name}/picture.svg?look={look}")[1].decode()
            inks = set(re.findall(r'(?:fill|stroke)="(#\w+)"', svg))
            assert ("#0072B2" in inks) == (is_seen and name != "trials"), (name, look)
            assert not inks & ({"#555555", "#777777", "#000", "black"} if look == "dark" else set())


def test_without_script_a_button_shows(browser: Browser, lab: str) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"{lab}/lab/coins?people=5")
        assert "100,000 respondents" in page.locator("figcaption").inner_text()
        page.click("text=Show")
        assert "people=5" in page.url


def test_the_console_shows_the_lab_to_who_signed_in(browser: Browser, service: Service) -> None:
    assert b"Sign in" in get(f"{service.url}/lab/coins")[1]
    with browser.new_context() as context:
        bring(context, service, service.owner())
        page = context.new_page()
        page.goto(f"{service.url}/lab")
        page.click("text=Two coins")
        expect(page.locator("figcaption")).to_contain_text("respondents")
