"""Programs in the console: handed in, tried, priced, reviewed, approved, run, and their answers."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

import sfumato
from sfumato.features.pipelines.program_folder import read_folder, text_digest
from sfumato.sandbox.environment_store import Environments
from support.browser import Watched, bring, context_of
from support.container_images import layout, member, shell_layer, tar_of
from support.pipeline_cards import town_card
from support.sandbox_blocks import needs_bubbles
from support.script_injections import TEXTS, harm_on
from support.served_vault import Service, served
from support.small_vaults import card, make_vault, write_csv

AT = "/data-sets/town/programs"
API = "/v1/data-sets/town/pipelines"
REGISTRY = "registry.example.org"
SETTINGS = {"registries": [REGISTRY], "timing": "batch"}
EVIL = "<img src=x onerror=hit(1)>"
CARD = f"""{town_card(40)}[columns."{EVIL}"]
type = "integer"
lower = 0
upper = 9
"""
PROGRAM = """
import csv, json, os, sys
import numpy
source, target, level = sys.argv[1:]
with open(os.path.join(source, "participants.tsv")) as file:
    people = list(csv.DictReader(file, delimiter="\\t"))
print("seen <script>hit(2)</script>", len(people))
print("on the other one", file=sys.stderr)
found = [float(one["height"]) for one in people if one["height"] != "n/a"] or [160]
with open(os.path.join(target, "results.json"), "w") as file:
    json.dump({"height": sum(found) / len(found)}, file)
numpy.save(os.path.join(target, "row.npy"), numpy.array([0.2, 0.4, 0.6]))
numpy.save(os.path.join(target, "map.npy"), numpy.array([[0.1, 0.9], [0.5, 0.5]]))
"""
OUTPUTS: tuple[dict[str, str], ...] = (
    {"name": "height", "lower": "100", "upper": "220", "step": "1", "path": "results.json",
     "at": "height"},
    {"name": "row", "lower": "0", "upper": "1", "step": "0.01", "path": "row.npy", "shape": "3"},
    {"name": "map", "lower": "0", "upper": "1", "step": "0.01", "path": "map.npy", "shape": "2,2"},
)  # fmt: skip
SHELL = {"PATH": "/bin", "LD_LIBRARY_PATH": "/lib64"}
STARTS = f"""#!/bin/bash
for i in 1 2 3; do echo | wc -l > /dev/null; done
cat '{EVIL}'; : > "$2/{EVIL}"; : > $2/$'a\\nb'; echo 5 > $2/n.txt
"""
CHECKS = 7
TRIAL_MS = 120_000  # a busy machine is slow; no test judges how long a trial takes
Scheme = Literal["light", "dark"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service of a town whose owner is `owner`, and which ria and eve may ask."""
    folder = tmp_path_factory.mktemp("programs")
    rows = [(f"n{place}", 150 + place / 2, 1) for place in range(40)]
    vault = make_vault(folder)
    settings = json.loads((vault / "vault.json").read_text())
    (vault / "vault.json").write_text(json.dumps({**settings, **SETTINGS}))
    with sfumato.open(vault) as opened:
        opened.add("town", write_csv(folder / "t.csv", ("who", "height", EVIL), rows), card(CARD))
        for name in ("ria", "eve", "uma", EVIL):
            opened.enrol(name, "researchers")
    with served(vault) as running:
        running.owner()
        for name in ("ria", "eve", "uma", EVIL):
            running.user(name, "researcher")
        running.user("olga", "owner")
        yield running


def as_user(browser: Browser, service: Service, name: str, **how: bool) -> Any:
    return context_of(browser, service, service.tokens[name], **how)


def submitted(service: Service, source: str, by: str = "ria", **more: object) -> str:
    """Return the digest of a program that waits for the owner."""
    outputs = [{"name": "n", "lower": 0, "upper": 9, "step": 1, "path": "n.txt", "at": [0]}]
    body = {"source": source, "name": "group", "kind": "program", "outputs": outputs, **more}
    status, made = service.call("POST", API, body, token=service.tokens[by])
    assert status == 200, made
    return str(made["digest"])


def decided(service: Service, digest: str, state: str, **more: object) -> None:
    body = {"state": state, **({"most_epsilon": 900} if state == "approved" else {}), **more}
    status, said = service.call("POST", f"{API}/{digest}/decision", body, token=service.owner())
    assert status == 200, said


def stored(service: Service, digest: str) -> Any:
    return service.call("GET", f"{API}/{digest}", token=service.owner())[1]


def fill_outputs(page: Page, outputs: tuple[dict[str, str], ...]) -> None:
    for place, output in enumerate(outputs):
        if page.locator("[name=output_name]").count() <= place:
            page.click("text=Another output")
        for name, value in output.items():
            page.locator(f"[name=output_{name}]").nth(place).fill(value)


def check_pages(browser: Browser, service: Service, who: str, paths: list[str]) -> None:
    """Let axe look at the pages in both schemes, and hold them against a telephone's width."""
    schemes: tuple[Scheme, ...] = ("light", "dark")
    for scheme in schemes:
        # axe brings its own script into the page, which the page's policy would not let in
        with browser.new_context(
            bypass_csp=True, color_scheme=scheme, viewport={"width": 390, "height": 844}
        ) as context:
            bring(context, service, service.tokens[who])
            page = context.new_page()
            for path in paths:
                page.goto(service.url + path)
                for fold in page.locator("details > summary").all():
                    fold.click()
                found = Axe().run(page).response["violations"]
                said = [(one["id"], one["nodes"][0]["html"]) for one in found]
                assert said == [], path
                assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
                assert page.locator("h1").count() == 1


@needs_bubbles
def test_a_program_goes_the_whole_way_from_its_file_to_its_answer(
    browser: Browser, service: Service, tmp_path: Path
) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    with as_user(browser, service, "ria") as context:
        ria = Watched(context.new_page()).watch()
        digest = _handed_in(ria.page, service, file)
        _try_and_price(ria.page)
        assert _paid(service) == []
        assert ria.complaints == []
    with as_user(browser, service, "owner") as context:
        owner = Watched(context.new_page()).watch()
        _approve_by_keyboard(owner.page, service, digest)
        assert owner.complaints == []
    assert len(stored(service, digest)["checked"]) == CHECKS
    with as_user(browser, service, "ria") as context:
        ria = Watched(context.new_page()).watch()
        answer = _ran(ria.page, f"{service.url}{AT}/{digest}").removeprefix(service.url)
        _look_at_answer(ria.page, service, answer)
        assert ria.complaints == []
    assert _paid(service) == ["600"]  # once
    _others_see_nothing(browser, service, digest, answer)
    check_pages(browser, service, "ria", [AT, f"{AT}/new", f"{AT}/{digest}", answer])
    check_pages(browser, service, "owner", [AT, f"{AT}/{digest}/review"])


def _paid(service: Service) -> list[str]:
    asked = service.call("GET", "/v1/questions", token=service.tokens["ria"])[1]["questions"]
    return [one["epsilon"] for one in asked]


def _handed_in(page: Page, service: Service, file: Path) -> str:
    page.goto(f"{service.url}/data-sets/town")
    page.click(f"main a[href='{AT}']")
    page.click("text=Hand in a program")
    page.set_input_files("#file", file)
    expect(page.locator("#source")).to_have_value(PROGRAM)
    expect(page.locator("#file-name")).to_have_value("program.py")
    page.check("#column-1")
    fill_outputs(page, OUTPUTS)
    page.get_by_role("button", name="Hand in").click()
    expect(page.locator(".lead")).to_contain_text("waits for the owner since")
    return page.url.rsplit("/", 1)[1]


def _try_and_price(page: Page) -> None:
    """See both streams and what was read and used; the price spends nothing and runs nothing."""
    page.get_by_role("button", name="Try it on synthetic people").click()
    page.wait_for_url("**#trial", timeout=TRIAL_MS)
    printed = page.locator("details pre").first.text_content() or ""
    assert "seen <script>hit(2)</script> 40" in printed
    assert "on the other one" in printed
    for words in ("exit status 0", "Wall time", "Processor time", "Memory", "Processes at once"):
        expect(page.locator("section:has(#trial) dl").first).to_contain_text(words)
    expect(page.locator("text=Nothing was spent.")).to_be_visible()
    page.get_by_role("button", name="Show the price").click()
    expect(page.locator("#price")).to_contain_text("nothing is spent yet")
    assert page.get_by_role("button", name="Run it").count() == 0


def _approve_by_keyboard(page: Page, service: Service, digest: str) -> None:
    page.goto(f"{service.url}/data-sets/town/manage")
    page.get_by_role("link", name="Programs").click()
    page.click(f"main a[href$='{digest}/review']")
    approve = page.get_by_role("button", name="Approve")
    expect(approve).to_be_disabled()
    boxes = page.locator("[data-check]")
    assert boxes.count() == CHECKS
    boxes.first.focus()
    for _ in range(CHECKS):
        page.keyboard.press("Space")
        page.keyboard.press("Tab")
    expect(page.locator("#most_epsilon")).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.type("900")
    expect(approve).to_be_enabled()
    page.keyboard.press("Tab")
    expect(page.locator("#timing")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(approve).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".lead")).to_contain_text("approved up to ε 900 a run")


def _ran(page: Page, url: str) -> str:
    """Return the address of the answer of a run that is confirmed with its price."""
    page.goto(url)
    page.fill("#epsilon", "600")
    page.fill("#blocks", "4")
    page.fill("#cpu_s", "2")
    page.get_by_role("button", name="Show the price").click()
    left = page.locator("table:has-text('left ε after') tbody tr").first
    expect(left).to_contain_text("1,000")
    expect(left).to_contain_text("400")
    page.get_by_role("button", name="Run it and pay ε 600").click()
    page.wait_for_url("**/jobs/*")
    _look_at_progress(page)
    page.get_by_role("link", name="See the answer").click(timeout=TRIAL_MS)
    page.wait_for_url("**/program-answer?op=*")
    return page.url


def _look_at_progress(page: Page) -> None:
    """See time alone: how much is gone, of what the terms plan; nothing of blocks or results."""
    bar = page.locator("progress")
    expect(bar).to_be_visible(timeout=TRIAL_MS)
    planned = int(bar.get_attribute("max") or 0)
    assert planned >= 2 + 2 * 3  # to write the rows, and two blocks on each of two processors
    first = bar.evaluate("bar => bar.value")
    expect(page.locator(".gone")).to_contain_text(f"of {planned} s")
    expect(bar).not_to_have_js_property("value", first)


def _look_at_answer(page: Page, service: Service, answer: str) -> None:
    said = page.get_by_role("img")
    expect(said.first).to_have_attribute("aria-label", _has("height: 1", "declared range"))
    expect(said.nth(1)).to_have_attribute("aria-label", _has("row, 3 numbers"))
    expect(said.nth(2)).to_have_attribute("aria-label", _has("map, 2 by 2 numbers"))
    value = float(page.locator("table.ranges td.n").first.inner_text())
    assert 150 < value < 170  # 159.75, and the noise of ε 600
    page.goto(f"{service.url}/history")
    page.locator("ol.past a").first.click()
    expect(page).to_have_url(service.url + answer)
    with page.expect_download() as got:
        page.click("text=CSV")
    lines = got.value.path().read_text().splitlines()
    assert lines[0] == "output,index,value,lower_95,upper_95"
    assert [line.split(",")[0] for line in lines[1:]] == ["height", *["row"] * 3, *["map"] * 4]
    page.goto(service.url + AT)
    expect(page.locator("ol.past")).to_contain_text("ε 600")


def _has(*words: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, words)))


TWO_NUMBERS = (
    "import sys\nfor name in ('n', 'm'):\n"
    "    with open(sys.argv[2] + f'/{name}.txt', 'w') as file:\n        file.write('4')\n"
)


@needs_bubbles
def test_an_owner_tries_a_batch_first_and_its_author_runs_it_by_a_wanted_error(
    browser: Browser, service: Service
) -> None:
    outputs = [
        {"name": name, "lower": 0, "upper": 9, "step": 1, "path": f"{name}.txt", "at": [0]}
        for name in ("n", "m")
    ]
    digest = submitted(service, TWO_NUMBERS, by="uma", outputs=outputs)
    with as_user(browser, service, "uma") as context:
        page = context.new_page()
        page.goto(f"{service.url}{AT}/{digest}")
        assert page.locator("select[name=timing]").count() == 0  # the owner has not read it
    with as_user(browser, service, "owner") as context:
        page = context.new_page()
        page.goto(f"{service.url}{AT}/{digest}/review")
        expect(page.locator("#trial-timing")).to_have_value("isolated")
        _try_in_a_batch(page)
        tried = stored(service, digest)["trial"]["plan"]
        assert [row["blocks"] for row in tried["at"]] == [4]
        check_pages(browser, service, "owner", [f"{AT}/{digest}/review"])
    decided(service, digest, "approved", timing="batch")
    with as_user(browser, service, "uma") as context:
        uma = Watched(context.new_page()).watch()
        uma.page.goto(f"{service.url}{AT}/{digest}")
        expect(uma.page.locator("#trial-timing")).to_have_value("batch")
        _price_by_errors(uma.page)
        check_pages(browser, service, "uma", [f"{AT}/{digest}"])
        uma.page.get_by_role("button", name="Run it").click()
        uma.page.get_by_role("link", name="See the answer").click(timeout=TRIAL_MS)
        uma.page.wait_for_url("**/program-answer?op=*")
        said = json.loads(uma.page.locator("section:has(#receipt) pre").text_content() or "")
        assert said["timing"].startswith("batch: ")
        assert said["pipeline"]["job_s"] == "5"
        assert uma.complaints == []


def _try_in_a_batch(page: Page) -> None:
    page.select_option("#trial-timing", "batch")
    page.click("text=More terms of the trial")
    for field, value in (("blocks", "4"), ("memory_mb", "512"), ("disk_mb", "32")):
        page.fill(f"#trial-{field}", value)
    page.fill("#trial-cpu", "30")
    page.get_by_role("button", name="Try it on synthetic people").click()
    page.wait_for_url("**/review", timeout=TRIAL_MS)
    expect(page.locator("section:has(#trial) dl").first).to_contain_text("exit status 0")


def _price_by_errors(page: Page) -> None:
    """See the price that two wanted errors need, and what a share costs beside one of them."""
    if not page.is_visible("#take"):  # it is open if the trial proposes a term that is in it
        page.click("summary:text-is('More terms')")
    page.select_option("#take", "auto")
    page.fill("#job_s", "5")
    page.fill("#trim", "")
    page.fill("[name='split:m']", "3")
    page.fill("#epsilon", "100")
    page.get_by_role("button", name="Show the price").click()
    shown = page.locator("div:has(> #price)")
    expect(shown).to_contain_text("Price: ε 100")
    expect(shown).to_contain_text("Chosen by the program's last trial")
    expect(page.locator("[name='split:m']").first).to_have_value("3")
    page.select_option("#take", "")
    page.fill("[name='split:m']", "")
    page.fill("[name='error:n']", "2")
    page.fill("[name='error:m']", "4")
    page.fill("#epsilon", "")
    page.get_by_role("button", name="Show the price").click()
    expect(shown).not_to_contain_text("ε 100")
    expect(shown).to_contain_text("Timing: batch")
    for name, most in (("n", 2), ("m", 4)):
        said = shown.locator(f"dt:text-is('{name}') + dd").inner_text()
        assert most / 2 < float(said.split()[1]) <= most
    expect(page.locator("[name='error:n']").first).to_have_value("2")


def _others_see_nothing(browser: Browser, service: Service, digest: str, answer: str) -> None:
    """A second researcher, and the owner of another data set: the program is not there."""
    for who in ("eve", "olga"):
        with as_user(browser, service, who) as context:
            page = context.new_page()
            for path in (f"{AT}/{digest}", f"{AT}/{digest}/review", answer):
                reply = page.goto(service.url + path)
                assert reply is not None
                assert reply.status == 404, (who, path)
                assert "height" not in (page.text_content("main") or "")
            page.goto(service.url + AT)
            assert digest[:12] not in (page.text_content("main") or "")
            assert page.locator("ol.past").count() == 0
    with as_user(browser, service, "ria") as context:  # the author is no reviewer
        reply = context.new_page().goto(f"{service.url}{AT}/{digest}/review")
        assert reply is not None
        assert reply.status == 403


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"upper": "90"}, "[name=output_upper]", "lower of output 'height' is not below its upper"),
        ({"path": "x/../y"}, "[name=output_path]", "output 'height' must come from a file"),
        ({"source": ""}, "#source", "a program's text must have 1 to"),
        ({"source": "é\u202e"}, "#source", "line 1 has U+202E RIGHT-TO-LEFT OVERRIDE"),
        ({"whitelist": "other.json"}, "#whitelist", "is not listed in the whitelist"),
        ({"kind": "function"}, "#function", "the function has no name"),
        ({"file": "a\u202eb.py"}, "#file-name", "the name of its file must be 1 to 100"),
    ],
)
def test_a_wrong_field_says_what_is_wrong_and_keeps_what_was_typed(
    browser: Browser, service: Service, changes: dict[str, str], field: str, says: str
) -> None:
    with as_user(browser, service, "ria") as context:
        page = context.new_page()
        page.goto(f"{service.url}{AT}/new")
        page.check(f"#kind-{changes.get('kind', 'program')}")
        page.fill("#source", changes.get("source", "pass"))
        page.fill("#file-name", changes.get("file", ""))
        rest = {name: text for name, text in changes.items() if name in OUTPUTS[0]}
        fill_outputs(page, ({**OUTPUTS[0], **rest},))
        if "whitelist" in changes:
            page.click("text=Whitelist of result files")
            page.fill("#whitelist", changes["whitelist"])
        page.get_by_role("button", name="Hand in").click()
        wrong = page.locator(field).first
        expect(wrong).to_have_attribute("aria-invalid", "true")
        described = wrong.get_attribute("aria-describedby") or ""
        expect(page.locator(f"#{described}")).to_contain_text(says)
        expect(page.locator("[name=output_name]").first).to_have_value("height")


def test_without_script_the_form_works_and_an_open_checklist_approves_nothing(
    browser: Browser, service: Service
) -> None:
    with as_user(browser, service, "ria", javascript=False) as context:
        page = context.new_page()
        page.goto(f"{service.url}{AT}/new")
        assert not page.locator("#file").is_visible()
        page.fill("#source", "# by hand")
        fill_outputs(page, OUTPUTS)
        page.get_by_role("button", name="Hand in").click()
        expect(page.locator(".lead")).to_contain_text("waits for the owner since")
        digest = page.url.rsplit("/", 1)[1]
    with as_user(browser, service, "owner", javascript=False) as context:
        page = context.new_page()
        page.goto(f"{service.url}{AT}/{digest}/review")
        for name in ("text", "columns"):
            page.check(f"#check-{name}")
        page.get_by_role("button", name="Approve").click()
        expect(page.locator(".refused .cause")).to_contain_text("You have not confirmed: Were the")
        assert page.is_checked("#check-text")
    assert stored(service, digest)["state"] == "waiting"


def test_a_folder_is_handed_in_and_each_file_is_reviewed(
    browser: Browser, service: Service, tmp_path: Path
) -> None:
    files = {"main.py": "import lib.a\n", "lib/a.py": "x = 1\n", "lib/é.txt": "", ".git/x": ""}
    place = tmp_path / "program"
    for path, text in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    with as_user(browser, service, "ria") as context:
        ria = Watched(context.new_page()).watch()
        page = ria.page
        page.goto(f"{service.url}{AT}/new")
        fill_outputs(page, OUTPUTS)
        page.set_input_files("#folder", place)
        expect(page.locator("#read")).to_have_text("Read 3 files. Nothing is sent yet.")
        expect(page.locator("#source")).to_have_value("import lib.a\n")
        page.get_by_role("button", name="Hand in").click()  # a name that no owner could read
        expect(page.locator("#problem-modules")).to_contain_text("must have a path of letters")
        expect(page.locator("[name=module_text]").first).to_have_value("x = 1\n")
        (place / "lib/é.txt").unlink()
        page.set_input_files("#folder", place)
        expect(page.locator("#read")).to_contain_text("Read 2 files")
        page.get_by_role("button", name="Hand in").click()
        expect(page.locator(".lead")).to_contain_text("waits for the owner since")
        first = page.url.rsplit("/", 1)[1]
        assert text_digest(stored(service, first)) == text_digest(read_folder(place))
        assert stored(service, first)["title"] == "program"  # the folder's name
        decided(service, first, "approved")
        check_pages(browser, service, "ria", [f"{AT}/{first}"])
    second = _handed_in_without_script(browser, service)
    with as_user(browser, service, "owner") as context:
        page = context.new_page()
        page.goto(f"{service.url}{AT}/{second}/review")
        changed = page.locator("section:has(#changes)")
        expect(changed).to_contain_text("the author's last approved program, program.")
        heads = changed.locator("h3").all_inner_texts()
        assert heads[2:] == ["lib/a.py, changed", "lib/b.py, a new file"]
        assert changed.locator(".added").all_inner_texts() == ["+x = 2", "+y = 3"]
        whole = page.text_content("section:has(#program)") or ""
        assert all(text in whole for text in ("3 files", "import lib.a", "x = 2", "y = 3"))
    check_pages(browser, service, "owner", [f"{AT}/{second}/review"])


@needs_bubbles
def test_an_owners_trial_in_a_batch_shows_commands_and_files(
    browser: Browser, service: Service, tmp_path: Path
) -> None:
    kept = Environments()
    digest = layout(tmp_path / "image", [shell_layer()], settings=SHELL, packed=False)
    name = kept.add_image(tmp_path / "image", digest).name
    try:
        one = submitted(service, STARTS, environment=name)
        with as_user(browser, service, "owner") as context:
            watched = Watched(context.new_page()).watch()
            page = watched.page
            page.goto(f"{service.url}{AT}/{one}/review")
            page.select_option("#trial-timing", "batch")
            page.get_by_role("button", name="Try it on synthetic people").click()
            expect(page.get_by_text("Nothing was spent.")).to_be_visible(timeout=TRIAL_MS)
            assert harm_on(page.content()) == []
            page.get_by_text("Commands that it ran").first.click()
            commands = page.locator("details:has-text('Commands that it ran') pre").first
            assert (commands.text_content() or "").splitlines() == [
                "/work/tmp/program.py /work/in /work/out group",
                "wc -l  # 3 times",
                f"cat {shlex.quote(EVIL)}",
            ]
            page.get_by_text("Files in the output folder").first.click()
            table = page.get_by_role("region", name="Table: files in the output folder").first
            assert [row.all_inner_texts() for row in _cells(table)] == [
                ["n.txt", "2", "taken"],
                [EVIL, "0", "not taken: no output declares it"],
                ["a\\nb", "0", "not taken: no output declares it"],
            ]
            assert watched.complaints == []
        with as_user(browser, service, "ria") as context:  # its author sees the owner's trial
            page = context.new_page()
            page.goto(f"{service.url}{AT}/{one}")
            assert page.get_by_text("Commands that it ran").count() > 0
        check_pages(browser, service, "owner", [f"{AT}/{one}/review"])
    finally:
        kept.remove(name)


def _cells(table: Any) -> list[Any]:  # Any: a locator
    return [row.locator("td") for row in table.locator("tbody tr").all()]


def test_an_owner_reads_what_an_image_says_about_itself_and_what_changed(
    browser: Browser, service: Service, tmp_path: Path
) -> None:
    kept, names = Environments(), []
    for version in ("one", "two"):
        labels = {EVIL: TEXTS[0], "version": version}
        digest = layout(tmp_path / version, [tar_of([member("run", b"x")])], labels=labels)
        names.append(kept.add_image(tmp_path / version, digest).name)
    try:
        first, second = (submitted(service, "", environment=name) for name in names)
        decided(service, first, "approved")
        with as_user(browser, service, "owner") as context:
            watched = Watched(context.new_page()).watch()
            page = watched.page
            page.goto(f"{service.url}{AT}/{second}/review")
            assert harm_on(page.content()) == []
            about = page.get_by_role("region", name="About the environment")
            expect(about).to_contain_text(f'label "{EVIL}": {json.dumps(TEXTS[0])}')
            expect(about).to_contain_text(f"manifest: sha256:{names[1].removeprefix('image-')}")
            changed = page.get_by_role("region", name="Changes of the environment")
            said = changed.locator(".added, .removed").all_inner_texts()
            assert said[2:] == ["-label version: one", "+label version: two"]
            assert watched.complaints == []
        check_pages(browser, service, "owner", [f"{AT}/{second}/review"])
    finally:
        for name in names:
            kept.remove(name)


def _handed_in_without_script(browser: Browser, service: Service) -> str:
    with as_user(browser, service, "ria", javascript=False) as context:
        page = context.new_page()
        page.goto(f"{service.url}{AT}/new")
        page.fill("#source", "import lib.a\n")
        fill_outputs(page, OUTPUTS)
        page.click("text=More files of the program")
        for place, (path, text) in enumerate((("lib/a.py", "x = 2\n"), ("lib/b.py", "y = 3"))):
            page.click("text=Another file")
            page.locator("[name=module_path]").nth(place).fill(path)
            page.locator("[name=module_text]").nth(place).fill(text)
        page.fill("#main-path", "main.py")
        page.get_by_role("button", name="Hand in").click()
        expect(page.locator(".lead")).to_contain_text("waits for the owner since")
        return str(page.url.rsplit("/", 1)[1])


def test_the_author_reads_why_a_program_was_declined(browser: Browser, service: Service) -> None:
    digest = submitted(service, "# to be declined")
    with as_user(browser, service, "owner") as context:
        page = context.new_page()
        page.goto(f"{service.url}{AT}/{digest}/review")
        page.fill("#reason", "The range is\nnarrow.")
        page.get_by_role("button", name="Decline").click()
        expect(page.locator(".lead")).to_contain_text("declined")
    with as_user(browser, service, "ria") as context:
        page = context.new_page()
        page.goto(service.url + AT)
        expect(page.locator("main")).to_contain_text("The range is")
        page.goto(f"{service.url}{AT}/{digest}")
        expect(page.locator(".refused .said")).to_have_text("The range is\nnarrow.")


def test_a_run_of_what_was_withdrawn_is_refused_on_the_programs_page(
    browser: Browser, service: Service
) -> None:
    digest = submitted(service, "# to be withdrawn")
    decided(service, digest, "approved")
    with as_user(browser, service, "ria") as context:
        page = context.new_page()
        page.goto(f"{service.url}{AT}/{digest}")
        page.get_by_role("button", name="Show the price").click()
        expect(page.locator(".warning").first).to_contain_text("A trial does that")
        decided(service, digest, "declined")
        page.get_by_role("button", name="Run it").click()
        expect(page.locator(".refused code").first).to_have_text("pipeline-waits")


def test_the_review_shows_what_has_changed_since_the_last_approval(
    browser: Browser, service: Service
) -> None:
    first = submitted(service, "a = 1\nb = 2\n", by="eve")
    decided(service, first, "approved")
    second = submitted(service, "a = 1\nb = 3\n", by="eve", columns=["height"])
    with as_user(browser, service, "owner") as context:
        page = context.new_page()
        page.goto(f"{service.url}{AT}/{second}/review")
        changed = page.locator("section:has(#changes)")
        assert changed.locator(".added").all_inner_texts() == ["+b = 3"]
        assert [text.strip() for text in changed.locator(".removed").all_inner_texts()] == [
            f"-column: {EVIL}", "-b = 2",
        ]  # fmt: skip
        numbers = page.locator("section:has(#program) tbody th").all_inner_texts()
        assert numbers == ["1", "2", "3"]


def test_no_text_of_a_program_runs_where_it_is_shown(browser: Browser, service: Service) -> None:
    source = "\n".join(f"# {text}" for text in TEXTS)
    decided(service, submitted(service, "# before", by=EVIL), "approved")
    digest = submitted(service, source, by=EVIL)
    paths = [AT, f"{AT}/new", f"{AT}/{digest}", f"{AT}/{digest}/review"]
    hits: list[int] = []
    with as_user(browser, service, "owner") as context:
        context.expose_function("hit", lambda number: hits.append(number))
        watched = Watched(context.new_page()).watch()
        page = watched.page
        page.goto(f"{service.url}{AT}/{digest}/review")
        page.fill("#reason", TEXTS[0] + EVIL)
        page.get_by_role("button", name="Decline").click()
        expect(page.locator(".lead")).to_contain_text("declined")
        for path in paths:
            page.goto(service.url + path)
            assert harm_on(page.content()) == [], path
            assert EVIL in (page.text_content("main") or ""), path
        page.goto(service.url + paths[-1])
        shown = page.text_content("section:has(#program)") or ""
        assert all(text in shown for text in TEXTS)
        page.wait_for_timeout(150)
        assert (hits, watched.complaints) == ([], [])


def test_an_image_is_asked_for_by_its_digest_and_the_operator_decides(
    browser: Browser, service: Service
) -> None:
    name = f"{REGISTRY}/team/tool@sha256:{64 * 'a'}"
    with as_user(browser, service, "ria", javascript=False) as context:
        page = context.new_page()
        page.goto(f"{service.url}{AT}/new")
        page.get_by_role("link", name="Ask the operator for it").click()
        page.fill("#image", name.replace(REGISTRY, "elsewhere.example.org"))
        page.get_by_role("button", name="Ask the operator").click()
        expect(page.locator(".refused .cause")).to_contain_text("does not allow the registry")
        page.fill("#image", name)
        page.fill("#why", TEXTS[0] + EVIL)
        page.get_by_role("button", name="Ask the operator").click()
        (one,) = page.locator("ul.people li").all()
        expect(one).to_contain_text("waits for the operator")
        assert page.get_by_role("button", name="Accept").count() == 0
    hits: list[int] = []
    with as_user(browser, service, "owner") as context:
        context.expose_function("hit", lambda number: hits.append(number))
        watched = Watched(context.new_page()).watch()
        page = watched.page
        page.goto(service.url + "/users")
        page.get_by_role("link", name="Images").click()
        assert harm_on(page.content()) == []
        expect(page.locator("ul.people .said")).to_contain_text(EVIL)
        check_pages(browser, service, "owner", ["/images"])
        page.get_by_role("button", name="Accept").click()
        expect(page.locator("ul.people")).to_contain_text("pipeline environment accept")
        page.wait_for_timeout(150)
        assert (hits, watched.complaints) == ([], [])
    with as_user(browser, service, "eve") as context:
        page = context.new_page()
        page.goto(service.url + "/images")
        assert name not in (page.text_content("main") or "")
    check_pages(browser, service, "ria", ["/images"])
    with as_user(browser, service, "ria") as context:
        page = context.new_page()
        page.goto(service.url + "/images")
        expect(page.locator("ul.people")).to_contain_text("accepted, and not pulled yet")


def test_a_page_of_programs_needs_the_forms_own_session(browser: Browser, service: Service) -> None:
    digest = submitted(service, "# by another site")
    with as_user(browser, service, "owner") as context:
        page = context.new_page()
        page.goto(service.url)
        form = {"do": "approve", "most_epsilon": "1", "csrf": "wrong"}
        at = f"{service.url}{AT}/{digest}/decision"
        for headers in ({"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "cross-site"}):
            assert page.request.post(at, form=form, headers=headers).status == 403
    assert stored(service, digest)["state"] == "waiting"
