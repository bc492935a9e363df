"""A respondent's page in a real browser: what it flips, what it sends, and what never leaves it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect

from sfumato.features.surveys.blind_signatures import _nobodys
from sfumato.features.surveys.randomised_report import (
    make_report,
    mark_of,
    read_published,
    token_digest,
    words_for,
)
from sfumato.features.surveys.respondent_client import in_words, read, shown
from support.browser import Watched
from support.served_vault import Service, served
from support.small_vaults import make_vault
from support.survey_fixtures import design

RFC: Final[dict[str, str]] = json.loads(
    (Path(__file__).parents[2] / "features" / "surveys" / "blind_vectors.json").read_text()
)
MARKING: Final = Path(__file__).parents[2] / "features" / "surveys" / "marking_key.json"
CANARY: Final = 79_191_357  # everybody's true number: too long to stand in a token by chance
WORDS: Final = "kestrel-6701"  # a true answer, in the words of an option
QUESTIONS: Final[list[dict[str, Any]]] = [
    {"id": "smokes", "text": "Do you smoke?", "kind": "yes-no"},
    {"id": "way", "text": "How do you come?", "kind": "choice", "options": ["foot", WORDS, "car"]},
    {"id": "has", "text": "Which?", "kind": "several", "options": ["flu", "measles", "mumps"]},
    {"id": "earns", "text": "How much?", "kind": "number", "low": 0, "high": 100_000_000},
    {"id": "first", "text": "What first?", "kind": "ranking", "options": ["quiet", "light", "air"]},
]
TRUTHS: Final[dict[str, Any]] = {
    "smokes": True, "way": WORDS, "has": ["flu", "mumps"], "earns": CANARY,
    "first": ["air", "quiet", "light"],
}  # fmt: skip
ANSWERING: Final = """async ([codes, truths]) => {
  const ballot = document.getElementById("ballot");
  const { prepared, send } = await import(document.querySelector("script[src*='survey.js']").src);
  const published = JSON.parse(ballot.dataset.text);
  const made = [];
  for (const code of codes) {
    const secret = crypto.getRandomValues(new Uint8Array(32));
    const ready = await prepared(published, ballot.dataset.survey, code, truths, secret);
    const said = await send(ready, () => {});
    made.push([Array.from(secret), ready.token, ready.said, said.counted, said.mark]);
  }
  return made;
}"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with served(make_vault(tmp_path_factory.mktemp("surveys"))) as running:
        yield running


@dataclass
class Wire:
    """Everything that a browser has sent."""

    sent: list[str] = field(default_factory=list)

    def hear(self, context: BrowserContext) -> None:
        """Begin to listen."""
        context.on("request", self._heard)

    def _heard(self, request: Request) -> None:
        headers = json.dumps(request.headers)
        self.sent.append(f"{request.method} {request.url}\n{headers}\n{request.post_data or ''}")

    def tells(self, *words: str) -> list[str]:
        """Return the words that something sent has in it."""
        return [word for word in words if any(word in one for one in self.sent)]

    def bodies(self, end: str) -> list[dict[str, Any]]:
        """Return what was posted to addresses with this end."""
        posted = [one.split("\n", 2) for one in self.sent if one.startswith("POST")]
        return [json.loads(body) for line, _, body in posted if line.endswith(end)]


def published(service: Service, **changed: Any) -> str:
    body = {"survey": design(**changed)}
    status, made = service.call("POST", "/v1/surveys", body, token=service.owner())
    assert status == 200, made
    return str(made["survey"])


def invited(service: Service, survey: str, count: int) -> list[str]:
    path = f"/v1/surveys/{survey}/invitations"
    made = service.call("POST", path, {"count": count}, token=service.owner())[1]
    return list(made["codes"])


def counted(service: Service, survey: str) -> list[dict[str, str]]:
    """Close the survey and return every report that is kept."""
    service.call("POST", f"/v1/surveys/{survey}/close", {}, token=service.owner())
    found: list[dict[str, str]] = []
    after = ""
    while True:
        page = service.call("GET", f"/v1/surveys/{survey}/reports{after}")[1]
        found += page["reports"]
        if page["next"] is None:
            return found
        after = f"?after={page['next']}"


@contextmanager
def visiting(browser: Browser, service: Service, path: str, **how: Any) -> Iterator[Page]:
    with browser.new_context(**how) as context:
        context.set_default_timeout(15_000)
        page = context.new_page()
        page.goto(service.url + path)
        yield page


def module(page: Page, name: str) -> str:
    return str(page.evaluate("document.querySelector(\"script[src*='survey.js']\").src")).replace(
        "survey.js", name
    )


def fill_in(page: Page) -> None:
    """Give the true answers, by clicks and keys."""
    page.check("#q0-0")
    page.check("#q1-1")
    page.check("#q2-0")
    page.check("#q2-2")
    page.fill("#q3", str(CANARY))
    for place, value in enumerate(("2", "3", "1")):
        page.select_option(f"#q4-{place}", value)


def test_two_hundred_respondents_are_counted_and_no_true_answer_leaves(
    browser: Browser, service: Service
) -> None:
    survey = published(service, questions=QUESTIONS, epsilon=10, minimum=50, people=200)
    codes = invited(service, survey, 200)
    wire, made = Wire(), []
    with browser.new_context() as context:
        context.set_default_timeout(120_000)
        wire.hear(context)
        for code in codes[:4]:
            page = context.new_page()
            page.goto(f"{service.url}/s/{survey}#{code}")
            fill_in(page)
            page.click("#flip")
            page.click("#send")
            page.wait_for_selector("#mark", state="visible")
            made.append(page.text_content("#mark"))
            page.evaluate("localStorage.clear()")
            page.close()
        page = context.new_page()
        page.goto(f"{service.url}/s/{survey}")
        page.wait_for_selector("#flip")
        answered = page.evaluate(ANSWERING, [codes[4:], TRUTHS])
        stored = page.evaluate("JSON.stringify(localStorage)")
        asked = published_of(service, survey)
        wire_before = list(wire.sent)
        page.evaluate("([words]) => fetch('/?' + words)", [WORDS])
        page.evaluate("([n]) => fetch('/', {method: 'POST', body: n})", [str(CANARY)])
        page.wait_for_timeout(200)
    assert wire.tells(WORDS, str(CANARY)) == [WORDS, str(CANARY)]  # what is planted is found
    wire.sent = wire_before
    assert wire.tells(WORDS, str(CANARY), "kestrel", "smokes", *codes[:0]) == []
    assert WORDS not in stored
    assert str(CANARY) not in stored
    for body in wire.bodies("/reports"):
        assert set(body) == {"token", "signature", "said"}
    posted = [one.split("\n", 2)[2] for one in wire.sent if one.startswith("POST")]
    assert {len(body) for body in posted} == {2048}  # whatever the coins have said
    for body in wire.bodies("/tokens"):
        assert set(body) == {"invitation", "blinded"}
    for secret, token, said, how, mark in answered:
        assert how == "now"
        assert said == make_report(asked, TRUTHS, bytes(secret))  # Python's own
        assert mark == mark_of(token_digest(read(token)), said)
    marks = {*made, *(one[4] for one in answered)}
    reports = counted(service, survey)
    assert {one["mark"] for one in reports} == marks
    assert len(reports) == 200
    found = service.call("GET", f"/v1/surveys/{survey}/estimates")[1]["questions"]
    yes = found[0]["estimates"][0]
    assert yes["high"] > 0.9
    assert 0.3 < sum(one["said"].startswith("0.0.0") for one in reports) / 200 < 0.97


def published_of(service: Service, survey: str) -> Any:
    return read_published(service.call("GET", f"/v1/surveys/{survey}")[1]["text"])


def test_script_blinds_as_the_rfc_does(browser: Browser, service: Service) -> None:
    survey = published(service)
    with visiting(browser, service, f"/s/{survey}") as page:
        found = page.evaluate(
            """async ([file, rfc]) => {
              const { blindWith, unblind, isSigned, keyOf, hexOf } = await import(file);
              const bytes = (hex) => Uint8Array.from(hex.match(/../g), (two) => parseInt(two, 16));
              const key = keyOf({ n: rfc.n, e: 65537 });
              const factor = BigInt(rfc.factor);
              const made = await blindWith(key, bytes(rfc.msg), bytes(rfc.salt), factor);
              const signature = unblind(key, bytes(rfc.blind_sig), BigInt("0x" + rfc.inv));
              const wrong = Uint8Array.from(signature, (byte, at) => (at === 9 ? byte ^ 1 : byte));
              return [hexOf(made.message), made.inverse.toString(16), hexOf(signature),
                await isSigned(key, bytes(rfc.msg), signature),
                await isSigned(key, bytes(rfc.msg), wrong)];
            }""",
            [module(page, "survey-blind.js"), {**RFC, "factor": _factor()}],
        )
    assert found == [RFC["blinded_msg"], RFC["inv"].lstrip("0"), RFC["sig"], True, False]


def test_script_draws_a_new_blinding_for_every_token(browser: Browser, service: Service) -> None:
    survey = published(service)
    with visiting(browser, service, f"/s/{survey}") as page:
        found = page.evaluate(
            """async ([file, rfc]) => {
              const { blind, keyOf, hexOf } = await import(file);
              const made = [];
              for (let n = 0; n < 20; n += 1) {
                const { message, inverse } = await blind(keyOf({ n: rfc.n, e: 65537 }),
                  new Uint8Array(32));
                made.push([hexOf(message), inverse.toString(16)]);
              }
              return made;
            }""",
            [module(page, "survey-blind.js"), RFC],
        )
    for column in zip(*found, strict=True):
        assert len(set(column)) == 20
    assert min(len(inverse) for _, inverse in found) > 1000


def _factor() -> str:
    return str(pow(int(RFC["inv"], 16), -1, int(RFC["n"], 16)))


VECTORS: Final[list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "dp" / "local" / "vectors.json").read_text()
)


def test_scripts_randomisers_are_held_by_the_same_vectors_as_pythons(
    browser: Browser, service: Service
) -> None:
    kinds = {"duchi", "hybrid", "k-ary", "piecewise", "subset"}
    listed = [one for one in VECTORS if one["parameters"]["kind"] in kinds]
    assert {one["parameters"]["kind"] for one in listed} == kinds
    with visiting(browser, service, f"/s/{published(service)}") as page:
        found = page.evaluate(
            """async ([file, vectors]) => {
              const { say } = await import(file);
              return vectors.map((one) =>
                one.cases.map((given) => say(one.parameters, given.value, given.words)));
            }""",
            [module(page, "survey-randomisers.js"), listed],
        )
    said = [
        [int.from_bytes(bytes.fromhex(case["report"]), "little") for case in one["cases"]]
        for one in listed
    ]
    assert found == said


MANY: Final[list[dict[str, Any]]] = [
    {"id": "smokes", "text": "Do you smoke?", "kind": "yes-no"},
    {"id": "way", "text": "Which line?", "kind": "choice",
     "options": [WORDS, "car", *(f"line {n}" for n in range(18))]},
    {"id": "earns", "text": "How much?", "kind": "number", "low": -50, "high": 99_999_999,
     "unit": "€"},
    {"id": "first", "text": "What first?", "kind": "ranking", "options": ["quiet", "light", "air"]},
]  # fmt: skip
NEEDED: Final = [
    {**one, "required": True} if one["kind"] in ("yes-no", "choice") else one for one in MANY
]
WAVES: Final[dict[str, Any]] = {"series": "Täglich", "ever": 10}


@pytest.mark.parametrize(
    "changed",
    [
        {}, {"budget": "sampled"}, {"series": "Immer"}, {"format": 1}, WAVES,
        {"questions": MANY, "epsilon": 1}, {"questions": MANY, "epsilon": 5},
        {"questions": MANY, "epsilon": 10, "lifetime": 10},
        {"questions": MANY, **WAVES, "series": "Öfter"},
        {"questions": NEEDED, "epsilon": 1}, {"questions": NEEDED, "epsilon": 9, "lifetime": 9},
        {"questions": NEEDED, **WAVES, "series": "Immer alle"},
    ],
)  # fmt: skip
def test_script_and_python_say_the_same(
    browser: Browser, service: Service, changed: dict[str, Any]
) -> None:
    survey = published(service, **{"questions": QUESTIONS, "epsilon": 5, **changed})
    asked = published_of(service, survey)
    known = {question.id for question in asked.survey.questions}
    cases = [
        {name: truth for name, truth in case.items() if name in known} for case in [
            TRUTHS, {}, {"smokes": False, "has": []}, {"earns": 0}, {"earns": 99_999_999},
            {"way": "car", "first": ["light", "air", "quiet"]},
        ]
    ]  # fmt: skip
    needed = {question.id for question in asked.survey.questions if question.is_required}
    cases = [case for case in cases if needed <= set(case)]
    secrets = [[n, *range(31)] for n in range(25 * 6 // len(cases))]
    with visiting(browser, service, f"/s/{survey}") as page:
        found = page.evaluate(
            """async ([file, survey, text, cases, secrets]) => {
              const { reportOf, spelled, idOf, inWords } = await import(file);
              const published = JSON.parse(text);
              const [made, words] = [[], []];
              for (const truths of cases) {
                for (const secret of secrets) {
                  const report = await reportOf(published, survey, truths, Uint8Array.from(secret));
                  made.push(spelled(report));
                  words.push(report.map((one) => inWords(published.survey.questions[one.question],
                    published.coins[one.question], one.slot, one.said)));
                }
              }
              return [await idOf(text), made, words];
            }""",
            [module(page, "survey-coins.js"), survey, asked.text, cases, secrets],
        )
    ours = [make_report(asked, truths, bytes(secret)) for truths in cases for secret in secrets]
    words = [[said for _, said in words_for(asked, report)] for report in ours]
    assert found == [survey, ours, words]
    assert len(set(ours)) > 30 or "budget" in changed


def test_a_question_that_needs_an_answer_is_not_sent_without_one(
    browser: Browser, service: Service
) -> None:
    survey = published(service, questions=[*NEEDED[:1], *MANY[2:3]])
    (code,) = invited(service, survey, 1)
    with visiting(browser, service, f"/s/{survey}#{code}") as page:
        page.wait_for_selector("#flip")
        assert page.locator("#q0-none").count() == 0
        page.click("#flip")
        expect(page.locator("#trouble")).to_contain_text("needs an answer")
        expect(page.locator("#fallen")).to_be_hidden()
        page.check("#q0-1")
        page.click("#flip")
        page.click("#send")
        page.wait_for_selector("#mark", state="visible")
    assert len(counted(service, survey)) == 1


def test_an_answer_without_a_network_is_kept_and_sent_later_once(
    browser: Browser, service: Service
) -> None:
    survey = published(service, questions=QUESTIONS)
    (code,) = invited(service, survey, 1)
    with visiting(browser, service, f"/s/{survey}#{code}") as page:
        fill_in(page)
        page.context.set_offline(True)
        page.click("#flip")
        page.click("#send")
        expect(page.locator("#progress")).to_contain_text("sent later")
        kept = page.evaluate("JSON.stringify(localStorage)")
        assert WORDS not in kept
        assert str(CANARY) not in kept
        page.context.set_offline(False)
        page.wait_for_selector("#mark", state="visible")
        mark = page.text_content("#mark")
        page.reload()
        page.wait_for_selector("#mark", state="visible")
        assert page.text_content("#mark") == mark
    assert [one["mark"] for one in counted(service, survey)] == [mark]


def test_a_reply_that_is_lost_costs_nobody_their_voice(browser: Browser, service: Service) -> None:
    survey = published(service, questions=QUESTIONS)
    (code,) = invited(service, survey, 1)
    with visiting(browser, service, f"/s/{survey}#{code}") as page:
        lost: list[int] = []

        def lose(route: Any) -> None:  # Any: of playwright
            if len(lost) < 2:  # it arrived; what came back did not
                lost.append(route.fetch().status)
                route.abort()
            else:
                route.continue_()

        page.route("**/v1/surveys/**", lose)
        page.click("#flip")
        page.click("#send")
        expect(page.locator("#progress")).to_contain_text("sent later")
        page.reload()
        expect(page.locator("#progress")).to_contain_text("sent later")
        page.reload()
        page.wait_for_selector("#mark", state="visible")
        assert lost == [200, 200]
    assert len(counted(service, survey)) == 1


NO_RECEIPT = [
    (502, {"message": "Bad gateway"}),
    (404, {"detail": "Not Found"}),
    (200, {}),
    (200, []),
    (500, {"refused": {"code": "fault", "cause": "A fault of ours.", "next": "Tell the owner."}}),
]


@pytest.mark.parametrize("step", ["tokens", "reports"])
def test_what_is_no_receipt_erases_no_ballot(browser: Browser, service: Service, step: str) -> None:
    survey = published(service, questions=QUESTIONS)
    (code,) = invited(service, survey, 1)
    with visiting(browser, service, f"/s/{survey}#{code}") as page:
        page.click("#flip")
        said: list[tuple[int, Any]] = []
        page.route(
            f"**/v1/surveys/**/{step}",
            lambda route: route.fulfill(status=said[-1][0], json=said[-1][1]),
        )
        for one in NO_RECEIPT:
            said.append(one)
            with page.expect_response(f"**/v1/surveys/**/{step}"):
                page.click("#send")
            is_refused = isinstance(one[1], dict) and "refused" in one[1]
            where = "#trouble" if is_refused else "#progress"
            expect(page.locator(where)).to_contain_text("stored on this device")
            assert page.is_hidden("#receipt")
        page.unroute(f"**/v1/surveys/**/{step}")
        page.reload()
        page.wait_for_selector("#mark", state="visible")
    assert len(counted(service, survey)) == 1


def test_an_invitation_on_another_device_is_told_that_it_was_used(
    browser: Browser, service: Service
) -> None:
    survey = published(service, questions=QUESTIONS)
    (code,) = invited(service, survey, 1)
    for box in ("#mark", "#trouble"):
        with visiting(browser, service, f"/s/{survey}#{code}") as page:
            page.click("#flip")
            page.click("#send")
            page.wait_for_selector(box, state="visible")
            if box == "#trouble":
                expect(page.locator("#trouble")).to_contain_text("already used for a ballot token")


def test_whoever_looks_for_a_mark_reads_in_words_what_was_sent(
    browser: Browser, service: Service
) -> None:
    survey = published(service, questions=QUESTIONS, minimum=10)
    with visiting(browser, service, f"/s/{survey}") as page:
        page.wait_for_selector("#flip")
        made = page.evaluate(ANSWERING, [invited(service, survey, 12), TRUTHS])
        asked = published_of(service, survey)
        counted(service, survey)  # closed: all of them show
        page.goto(f"{service.url}/s/{survey}/reports")
        for _, _, said, _, mark in made:
            words = "; ".join(one for _, one in words_for(asked, said))
            expect(page.locator("tr", has_text=mark)).to_contain_text(words)
        expect(page.locator("caption")).to_contain_text("12 reports")
        expect(page.locator("caption")).not_to_contain_text("more")


def test_a_report_of_one_drawn_question_says_which(service: Service) -> None:
    made = published_of(service, published(service, budget="sampled"))
    said = make_report(made, {"smokes": True}, bytes(32))
    number = int(said.split(".")[0]) + 1
    assert in_words(made.text, [said])[0].startswith(f"{number}. ")


def stored_after(browser: Browser, service: Service, truth: int, **changed: Any) -> dict[str, Any]:
    """Return what the browser keeps of an answer, from a device whose secret is known."""
    questions = [{"id": "fit", "text": "How fit?", "kind": "number", "low": 1, "high": 5}]
    survey = published(service, questions=questions, epsilon=1, **changed)
    (code,) = invited(service, survey, 1)
    with visiting(browser, service, f"/s/{survey}#{code}") as page:
        page.fill("#q0", str(truth))
        page.click("#flip")
        page.click("#send")
        page.wait_for_selector("#mark", state="visible")
        kept: dict[str, str] = page.evaluate("({...localStorage})")
    return {
        "names": [name.replace(survey, "?") for name in json.loads(kept["sfumato-survey-spent"])],
        "report": sorted(json.loads(kept["sfumato-survey-done"])[survey]["report"][0]),
        "secrets": list(json.loads(kept["sfumato-survey-secret"])),
    }


def test_what_is_kept_beside_the_secret_hangs_on_no_answer(
    browser: Browser, service: Service
) -> None:
    """A sum under a name that follows from secret and truth told it to whoever tried them all."""
    seen = [stored_after(browser, service, truth) for truth in (1, 4)]
    assert seen[0] == seen[1]
    assert seen[0] == {
        "names": ["?.0"], "report": ["cost", "question", "said", "slot"], "secrets": [],
    }  # fmt: skip
    assert stored_after(browser, service, 4, series="daily fitness")["secrets"] == ["series"]


def test_what_is_ticked_of_several_is_what_the_coins_get(
    browser: Browser, service: Service
) -> None:
    """At the largest epsilon the coins nearly always say what they were told."""
    options = ["flu", "measles"]
    questions = [{"id": "has", "text": "Which?", "kind": "several", "options": options}]
    survey = published(service, questions=questions, epsilon=10)
    said = {}
    for box in ("", "#q0-nothing", "#q0-none"):
        found = []
        for _ in range(4):
            with visiting(browser, service, f"/s/{survey}#none") as page:
                page.wait_for_selector("#flip")
                if box:
                    page.check(box)
                page.click("#flip")
                found.append(page.text_content("#said dd") or "")
        said[box] = sum("no answer" in words for words in found)
    assert said[""] >= 3
    assert said["#q0-nothing"] <= 1
    assert said["#q0-none"] >= 3
    with visiting(browser, service, f"/s/{survey}#none") as page:
        page.check("#q0-nothing")
        page.check("#q0-1")
        page.click("#flip")
        expect(page.locator("#trouble")).to_contain_text("has an answer that does not fit")


def test_a_page_that_is_no_answer_a_wrong_number_and_a_wrong_link_are_borne(
    browser: Browser, service: Service
) -> None:
    survey = published(service, questions=QUESTIONS)
    (code,) = invited(service, survey, 1)
    with visiting(browser, service, f"/s/{survey}#%E0") as page:
        page.wait_for_selector("#flip")
        assert page.input_value("#code") == "%E0"
        page.fill("#code", code)
        page.focus("#q3")
        page.keyboard.type("1e")  # a browser gives this out as empty
        page.click("#flip")
        expect(page.locator("#trouble")).to_contain_text("has an answer that does not fit")
        page.fill("#q3", "5")
        page.click("#flip")
        broken: dict[str, Any] = {
            "status": 502,
            "content_type": "text/html",
            "body": "<h1>Bad gateway</h1>",
        }
        page.route("**/v1/surveys/**", lambda route: route.fulfill(**broken))
        page.click("#send")
        expect(page.locator("#progress")).to_contain_text("sent later")
        page.unroute("**/v1/surveys/**")
        page.click("#send")
        page.wait_for_selector("#mark", state="visible")
    assert len(counted(service, survey)) == 1


def test_a_key_that_might_mark_people_is_noticed_before_anything_is_sent(
    browser: Browser, service: Service
) -> None:
    survey = published(service)
    marking = json.loads(MARKING.read_text())
    asked = published_of(service, survey).key
    numbers = [shown(one.to_bytes(asked.size, "big")) for one in _nobodys(asked)]  # of exponent 1
    with visiting(browser, service, f"/s/{survey}") as page:
        found = page.evaluate(
            """async ([file, p, q, numbers]) => {
              const { isProven, keyOf, bytesOf } = await import(file);
              const { text, proof } = document.getElementById("ballot").dataset;
              const [key, roots] = [keyOf(JSON.parse(text).key), JSON.parse(proof).map(bytesOf)];
              const n = (BigInt("0x" + p) * BigInt("0x" + q)).toString(16);
              const wrong = roots.map((one, at) => at === 5 ? one.map((byte) => byte ^ 1) : one);
              return [await isProven(key, roots), await isProven(key, wrong),
                await isProven(key, roots.slice(1)), await isProven(key, []),
                await isProven(keyOf({ n, e: 65537 }), roots),
                await isProven({ ...key, exponent: 3n }, roots),
                await isProven({ ...key, exponent: 1n }, numbers.map(bytesOf))];
            }""",
            [module(page, "survey-blind.js"), marking["p"], marking["q"], numbers],
        )
    assert found == [True, False, False, False, False, False, False]
    with browser.new_context() as context:
        page = context.new_page()

        def change(route: Any) -> None:  # Any: of playwright
            reply = route.fetch()
            body = re.sub(r'data-proof="[^"]*"', 'data-proof="[]"', reply.text())
            route.fulfill(response=reply, body=body)

        page.route("**/s/*", change)
        page.goto(f"{service.url}/s/{survey}")
        expect(page.locator("#trouble")).to_contain_text("could sign differently")
        expect(page.locator("#flip")).to_be_hidden()


def test_another_survey_under_the_link_is_noticed(browser: Browser, service: Service) -> None:
    survey = published(service)
    with browser.new_context() as context:
        page = context.new_page()

        def change(route: Any) -> None:  # Any: of playwright
            reply = route.fetch()
            route.fulfill(
                response=reply, body=reply.text().replace("Do you smoke?", "Do you vote?")
            )

        page.route("**/s/*", change)
        page.goto(f"{service.url}/s/{survey}")
        expect(page.locator("#trouble")).to_contain_text("not show the survey of your link")
        expect(page.locator("#flip")).to_be_hidden()


def test_the_same_answer_falls_the_same_way_again_and_is_told_as_one_sum(
    browser: Browser, service: Service
) -> None:
    waves = [published(service, title=f"Day {n}", series="daily") for n in range(3)]
    said = []
    with browser.new_context() as context:
        context.set_default_timeout(15_000)
        for survey in waves:
            (code,) = invited(service, survey, 1)
            page = context.new_page()
            page.goto(f"{service.url}/s/{survey}#{code}")
            expect(page.locator("#learnt ~ ul")).to_contain_text("your answer has changed")
            expect(page.locator("#learnt ~ ul")).not_to_contain_text("for ever")
            page.check("#q0-0")
            page.check("#q1-1")
            page.click("#flip")
            page.click("#send")
            page.wait_for_selector("#mark", state="visible")
            spent = page.evaluate("JSON.parse(localStorage['sfumato-survey-spent'])")
            said.append((page.text_content("#receipt-said"), sum(spent.values())))
    assert len({words for words, _ in said}) == 1
    assert [spent / said[0][1] for _, spent in said] == pytest.approx([1, 2, 3])  # each is charged


def test_a_device_answers_no_wave_that_asks_otherwise_than_the_one_before(
    browser: Browser, service: Service
) -> None:
    """All waves with `ever` are of the same lasting answers, or the promise would not hold."""
    waves = [published(service, title=f"Week {n}", series="weekly", ever=8) for n in range(3)]
    with browser.new_context() as context:
        context.set_default_timeout(15_000)
        page = context.new_page()
        # One without `ever` may follow that asks for the very same: the promise stays known.
        same = published(service, title="Week 9", series="weekly", epsilon=8)
        for survey in [*waves[:2], same]:
            (code,) = invited(service, survey, 1)
            page.goto(f"{service.url}/s/{survey}#{code}")
            page.check("#q0-0")
            page.click("#flip")
            page.click("#send")
            page.wait_for_selector("#mark", state="visible")
        known = page.evaluate("JSON.parse(localStorage['sfumato-survey-series'])")
        assert [one["lasts"] for one in known.values()] == [True]
        other = {name: {**one, "memos": "0" * 64} for name, one in known.items()}
        page.evaluate("(o) => { localStorage['sfumato-survey-series'] = JSON.stringify(o) }", other)
        page.goto(f"{service.url}/s/{waves[2]}#{invited(service, waves[2], 1)[0]}")
        expect(page.locator("#trouble")).to_contain_text("differs from the wave")
        expect(page.locator("#flip")).to_be_hidden()


def test_a_browser_that_keeps_nothing_answers_no_series(browser: Browser, service: Service) -> None:
    """Its secret would be another in each wave; alone, a survey is answered all the same."""
    with browser.new_context() as context:
        context.set_default_timeout(15_000)
        context.add_init_script("Storage.prototype.setItem = () => { throw new Error('full') }")
        page = context.new_page()
        page.goto(f"{service.url}/s/{published(service, title='Week 1', series='forgetful')}")
        expect(page.locator("#trouble")).to_contain_text("does not let this page store data")
        expect(page.locator("#flip")).to_be_hidden()
        survey = published(service)
        page.goto(f"{service.url}/s/{survey}#{invited(service, survey, 1)[0]}")
        expect(page.locator("#learnt ~ ul")).to_contain_text("only if you were invited by name")
        page.click("#flip")
        first = page.text_content("#exactly")
        page.click("#back")
        page.click("#flip")
        said = [json.loads(str(text).split("without it: ")[1])["said"]
                for text in (first, page.text_content("#exactly"))]  # fmt: skip
        assert said[0] == said[1]  # one secret, as long as the page is there
        page.click("#send")
        page.wait_for_selector("#mark", state="visible")


FULL = """
const set = Storage.prototype.setItem;
Storage.prototype.setItem = function (name, value) {
  if (name === "WHAT") throw new Error("full");
  set.call(this, name, value);
};
"""


@pytest.mark.parametrize("what", ["secret", "series"])
def test_a_browser_that_is_full_when_it_matters_sends_no_answer_to_a_series(
    browser: Browser, service: Service, what: str
) -> None:
    """It takes a small thing, and then not what the next wave asks for."""
    wave = published(service, title="Week 1", series=f"full of {what}")
    with browser.new_context() as context:
        context.set_default_timeout(15_000)
        context.add_init_script(FULL.replace("WHAT", f"sfumato-survey-{what}"))
        page = context.new_page()
        page.goto(f"{service.url}/s/{wave}#{invited(service, wave, 1)[0]}")
        page.click("#flip")
        if what == "series":
            page.click("#send")
        expect(page.locator("#trouble")).to_contain_text("does not let this page store data")
        assert page.evaluate("localStorage['sfumato-survey-spent']") is None
    assert counted(service, wave) == []


def test_a_browser_that_lost_its_secret_alone_answers_no_series(
    browser: Browser, service: Service
) -> None:
    """A fresh one would draw every lasting answer anew, beside those that were told before."""
    waves = [published(service, title=f"Week {n}", series="half", ever=8) for n in range(2)]
    with browser.new_context() as context:
        context.set_default_timeout(15_000)
        page = context.new_page()
        page.goto(f"{service.url}/s/{waves[0]}#{invited(service, waves[0], 1)[0]}")
        page.click("#flip")
        page.click("#send")
        page.wait_for_selector("#mark", state="visible")
        page.evaluate("localStorage.removeItem('sfumato-survey-secret')")
        page.goto(f"{service.url}/s/{waves[1]}#{invited(service, waves[1], 1)[0]}")
        expect(page.locator("#trouble")).to_contain_text("does not let this page store data")
        expect(page.locator("#flip")).to_be_hidden()
        assert page.evaluate("localStorage['sfumato-survey-secret']") is None


def test_of_two_pages_with_waves_that_ask_otherwise_one_is_sent(
    browser: Browser, service: Service
) -> None:
    """Both were opened before either was answered."""
    wave = published(service, title="Week 1", series="doubly", ever=8)
    with browser.new_context() as context:
        context.set_default_timeout(15_000)
        page = context.new_page()
        page.goto(f"{service.url}/s/{wave}#{invited(service, wave, 1)[0]}")
        page.click("#flip")
        known = {'["The works council","doubly"]': {"memos": "of another", "lasts": True}}
        page.evaluate("(o) => { localStorage['sfumato-survey-series'] = JSON.stringify(o) }", known)
        page.click("#send")
        expect(page.locator("#trouble")).to_contain_text("differs from the wave")
        expect(page.locator("#mark")).to_be_hidden()


def test_of_two_pages_of_one_survey_one_ballot_is_sent(browser: Browser, service: Service) -> None:
    """Both were opened before either was answered; a second ballot would be a second draw."""
    survey = published(service)
    codes = invited(service, survey, 3)
    with browser.new_context() as context:
        context.set_default_timeout(15_000)
        pages = [context.new_page() for _ in codes]
        for page, code in zip(pages, codes, strict=True):
            page.goto(f"{service.url}/s/{survey}#{code}")
        for page in pages[:2]:
            page.click("#flip")
            page.wait_for_selector("#send", state="visible")
        marks = []
        for page, button in zip(pages, ("#send", "#send", "#flip"), strict=True):
            page.click(button)
            page.wait_for_selector("#mark", state="visible")
            marks.append(page.text_content("#mark"))
    assert len({*marks}) == 1
    assert [one["mark"] for one in counted(service, survey)] == marks[:1]


def test_script_and_python_remember_a_series_alike(browser: Browser, service: Service) -> None:
    """Where one question is drawn, its place among the others is part of what lasts."""
    with browser.new_context() as context:
        context.set_default_timeout(15_000)
        page = context.new_page()
        for budget in ("sampled", "split"):
            wave = published(service, series=budget, ever=8, budget=budget, questions=QUESTIONS)
            page.goto(f"{service.url}/s/{wave}#{invited(service, wave, 1)[0]}")
            page.click("#flip")
            page.click("#send")
            page.wait_for_selector("#mark", state="visible")
            known = page.evaluate("JSON.parse(localStorage['sfumato-survey-series'])")
            lasting = " ".join(published_of(service, wave).lasting)
            assert known[f'["The works council","{budget}"]']["memos"] == lasting


def test_it_is_answered_by_keys_alone(browser: Browser, service: Service) -> None:
    survey = published(service)
    (code,) = invited(service, survey, 1)
    with visiting(browser, service, f"/s/{survey}#{code}") as page:
        page.wait_for_selector("#flip")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        for _ in range(8):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id").startswith("q0"):
                break
        page.keyboard.press("ArrowUp")
        for _ in range(8):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == "flip":
                break
        page.keyboard.press("Enter")
        page.wait_for_selector("#send", state="visible")
        assert page.evaluate("document.activeElement.id") == "sends"
        for _ in range(5):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == "send":
                break
        page.keyboard.press("Space")
        page.wait_for_selector("#mark", state="visible")
        assert page.evaluate("document.activeElement.id") == "thanks"


def test_without_script_it_is_answered_with_dice(browser: Browser, service: Service) -> None:
    survey = published(service, paper=True)
    (code,) = invited(service, survey, 1)
    with visiting(browser, service, f"/s/{survey}", java_script_enabled=False) as page:
        expect(page.locator("#ballot")).to_be_hidden()
        page.click("#unscripted a")
        page.check("#q0-2")
        page.check("#q1-0")
        page.fill("#code", code)
        page.click("button")
        expect(page.locator("[role=status]")).to_contain_text("counts once")
        mark = page.locator("code").first.text_content()
        page.reload()  # the same sheet once more, as after a reply that was lost
        again = page.locator("[role=status]")
        expect(again).to_contain_text("counts once")
        expect(again).to_contain_text("all is well")
    assert counted(service, survey) == [{"mark": mark, "said": "0.0.2 1.0.0"}]


WIDEST: Final = """() => {  // what is said of a table is not cut off with the table
  const captions = [...document.querySelectorAll("caption")];
  const ends = captions.map((one) => one.getBoundingClientRect().right);
  return Math.max(document.documentElement.scrollWidth, ...ends);
}"""


def test_the_pages_are_well_made_and_narrow_enough(browser: Browser, service: Service) -> None:
    survey = published(service, questions=QUESTIONS, minimum=10)
    paper = published(service, paper=True)
    codes = invited(service, survey, 30)
    found, widths = {}, {}
    how: dict[str, Any] = {"viewport": {"width": 320, "height": 800}, "bypass_csp": True}
    with browser.new_context(**how) as context:  # axe's own script is none of ours
        watched = Watched(context.new_page()).watch()
        page = watched.page
        page.goto(f"{service.url}/s/{survey}")
        page.wait_for_selector("#flip")
        page.evaluate(ANSWERING, [codes, TRUTHS])
        for path in (f"/s/{survey}", f"/s/{survey}/results", f"/s/{survey}/reports",
                     f"/s/{paper}/paper", f"/s/{paper}"):  # fmt: skip
            page.goto(service.url + path)
            page.wait_for_load_state("networkidle")
            found[path] = [
                (v["id"], v["nodes"][0]["html"]) for v in Axe().run(page).response["violations"]
            ]
            widths[path] = page.evaluate(WIDEST)
    assert {path: wrong for path, wrong in found.items() if wrong} == {}
    assert {path: width for path, width in widths.items() if width > 320} == {}
    assert watched.complaints == []
