"""What owners see of a program before they approve it, what they confirm, and what authors see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.client.answer import Answer
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.model import APPROVED, Submitted
from sfumato.features.pipelines.program_review import (
    CHECKLIST,
    MAX_COMPARED,
    approved_before,
    asked_of,
    changes_json,
    environment_lines,
    read_checked,
)
from sfumato.features.pipelines.review_cli import review_lines, state_lines
from sfumato.features.pipelines.review_store import MAX_TRIALS
from sfumato.features.pipelines.store import SqlPipelines
from support.container_images import layout, member, tar_of
from support.pipeline_cards import town_card
from support.sandbox_blocks import hurry, needs_bubbles
from support.small_vaults import card, make_vault, run, write_csv

CARD = town_card(40, delta="1e-4")
SOURCE = "def mean(rows):\n    print('seen')\n    return rows['height'].mean()\n"
OUTPUTS = [{"name": "mean", "lower": 100, "upper": 220, "step": 1}]
TERMS: dict[str, Any] = {"epsilon": 900, "blocks": 4, "cpu_s": 2}


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    rows = [(f"n{place}", 150 + place / 2) for place in range(40)]
    source = write_csv(tmp_path / "t.csv", ("who", "height"), rows)
    with sfumato.open(make_vault(tmp_path)) as made:
        made.add("town", source, card(CARD))
        others = write_csv(tmp_path / "o.csv", ("who", "height"), [("a", 150), ("b", 160)])
        made.add("other", others, card(CARD.replace('"town"', '"elsewhere"')))
        for name in ("ria", "eve"):
            made.enrol(name, "researchers")
        hurry(made)
        yield made


def as_user(vault: OpenVault, name: str) -> Any:
    return OpenVault(vault.house, name)


def submitted(vault: Any, source: str = SOURCE, **more: object) -> str:
    body = {"data_set": "town", "source": source, "name": "mean", "outputs": OUTPUTS, **more}
    return str(vault.call("submit-pipeline", body)["digest"])


def seen(vault: Any, digest: str, data_set: str = "town") -> Any:
    return vault.call("pipeline", {"data_set": data_set, "pipeline": digest})


def decided(vault: Any, digest: str, state: str = "approved", **more: object) -> Any:
    most = {"most_epsilon": 900} if state == "approved" else {}
    body = {"data_set": "town", "pipeline": digest, "state": state, **most, **more}
    return vault.call("decide-pipeline", body)


def code_of(act: Any) -> str:
    with pytest.raises(Refused) as refused:
        act()
    return refused.value.code


def test_the_author_and_the_owner_see_a_program_and_nobody_else(vault: OpenVault) -> None:
    ria, eve = as_user(vault, "ria"), as_user(vault, "eve")
    digest = submitted(ria)
    assert seen(ria, digest)["may_decide"] is False
    assert seen(vault, digest)["may_decide"] is True
    decided(vault, digest)
    # Eve may run what is approved, but its text and its review are not hers
    assert code_of(lambda: seen(eve, digest)) == "pipeline-unknown"
    assert code_of(lambda: seen(vault, digest, "other")) == "pipeline-unknown"
    assert eve.call("pipelines", {"data_set": "town"})["pipelines"] == []


def test_what_the_owner_confirms_is_stored_and_in_the_ledger(vault: OpenVault) -> None:
    ria = as_user(vault, "ria")
    digest = submitted(ria)
    decided(vault, digest, checked=["ranges", "text"], reason="for one year")
    found = seen(ria, digest)
    assert (found["checked"], found["reason"]) == (["text", "ranges"], "for one year")
    (noted,) = vault.house.ledger.store.notes("pipeline-approved")
    assert json.loads(noted.body)["checked"] == ["text", "ranges"]


def test_an_approval_without_a_checklist_is_noted_as_before(vault: OpenVault) -> None:
    decided(vault, submitted(as_user(vault, "ria")))
    (noted,) = vault.house.ledger.store.notes("pipeline-approved")
    assert set(json.loads(noted.body)) == {
        "data_set", "digest", "by", "most_epsilon", "columns", "outputs",
    }  # fmt: skip


def test_a_reason_belongs_to_its_decision(vault: OpenVault) -> None:
    ria = as_user(vault, "ria")
    digest = submitted(ria)
    decided(vault, digest, "declined", reason="the range is too narrow")
    (listed,) = ria.call("pipelines", {"data_set": "town"})["pipelines"]
    assert (listed["state"], listed["reason"]) == ("declined", "the range is too narrow")
    decided(vault, digest)
    assert seen(ria, digest)["reason"] == ""


@pytest.mark.parametrize(
    "more",
    [{"checked": ["nonsense"]}, {"checked": [1]}, {"reason": "x" * 1001}, {"reason": "\x1b[0m"}],
)
def test_an_unreadable_review_decides_nothing(vault: OpenVault, more: dict[str, Any]) -> None:
    digest = submitted(as_user(vault, "ria"))
    assert code_of(lambda: decided(vault, digest, **more)) == "bad-pipeline"
    assert seen(vault, digest)["state"] == "waiting"
    assert vault.house.ledger.store.notes("pipeline-approved") == ()


def test_an_approved_program_whose_libraries_have_changed_says_so(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    ria, sandbox = as_user(vault, "ria"), vault.house.desk.pipelines.door.sandbox
    digest = submitted(ria)
    decided(vault, digest)
    assert seen(ria, digest)["is_current"] is True
    monkeypatch.setattr(sandbox, "environment", lambda own="": "newer")
    found = seen(ria, digest)
    assert (found["is_current"], found["errors"]) == (False, None)
    assert "libraries or the data card have changed" in "\n".join(state_lines(found))


def test_a_program_whose_environment_was_removed_names_it_and_not_the_card(
    vault: OpenVault, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mine.py").write_text(f"X = {str(tmp_path)!r}")
    name = vault.environments.add_folder(tmp_path / "mine").name
    try:
        digest = submitted(vault, environment=name)
        assert seen(vault, digest)["is_here"] is True
    finally:
        vault.environments.remove(name)
    found = seen(vault, digest)
    assert (found["is_here"], found["is_current"]) == (False, False)
    lines = "\n".join(state_lines(found))
    assert f"cannot run: Its environment {name[:24]} is not on this machine" in lines
    assert "card" not in lines
    priced: Any = vault.call("price-pipeline", {"data_set": "town", "pipeline": digest, **TERMS})
    assert "is not on this machine" in priced["warnings"][0]


@needs_bubbles
def test_the_last_trial_of_author_or_owner_is_shown_and_anybody_elses_is_not(
    vault: OpenVault,
) -> None:
    ria, eve = as_user(vault, "ria"), as_user(vault, "eve")
    digest = submitted(ria)
    assert "not tried" in seen(vault, digest)["warnings"][0]
    terms = {"data_set": "town", "pipeline": digest, "epsilon": 1, "people": 20}
    ria.call("plan-pipeline", terms)
    found = seen(vault, digest)
    assert (found["trial"]["by"], found["warnings"]) == ("ria", [])
    trial = found["trial"]["plan"]["trials"][0]
    assert trial["printed"] == "seen\n"
    assert f"  It took {trial['wall_s']:.2f} s, and used " in "\n".join(review_lines(found))
    del trial["wall_s"]  # as a trial that an earlier version has kept
    assert "  It used " in "\n".join(review_lines(found))
    decided(vault, digest)
    eve.call("plan-pipeline", terms)
    assert seen(vault, digest)["trial"]["by"] == "ria"


@needs_bubbles
def test_a_trial_of_anybody_else_shows_nothing_of_an_approved_programs_text(
    vault: OpenVault,
) -> None:
    ria, eve = as_user(vault, "ria"), as_user(vault, "eve")
    digest = submitted(ria, "def mean(rows):\n    raise ValueError('an unpublished idea')\n")
    decided(vault, digest)
    terms = {"data_set": "town", "pipeline": digest, "epsilon": 1, "people": 20, "seed": "1"}
    owner: Any = vault
    for author in (ria, owner):
        mine = author.call("plan-pipeline", terms)
        assert "an unpublished idea" in mine["trials"][0]["printed"]
    other = eve.call("plan-pipeline", terms)
    assert "idea" not in json.dumps(other)
    assert other["trials"] == []
    assert [other[name] for name in ("at", "choice", "never")] == [
        mine[name] for name in ("at", "choice", "never")
    ]
    assert "an unpublished idea" in seen(ria, digest)["trial"]["plan"]["trials"][0]["printed"]


def listed(vault: Any) -> list[tuple[str, list[str]]]:
    found = vault.call("pipelines", {"data_set": "town"})["pipelines"]
    return [(one["digest"], one["authors"]) for one in found]


def test_whoever_hands_in_a_program_later_is_an_author_too_and_sees_nobody_else(
    vault: OpenVault,
) -> None:
    ria, eve = as_user(vault, "ria"), as_user(vault, "eve")
    earlier = submitted(eve, SOURCE.replace("seen", "earlier"))
    decided(vault, earlier)
    digest = submitted(eve)
    assert code_of(lambda: seen(ria, digest)) == "pipeline-unknown"
    body: dict[str, object] = {
        "data_set": "town", "source": SOURCE, "name": "mean", "outputs": OUTPUTS,
    }  # fmt: skip
    for _ in range(2):
        made = ria.call("submit-pipeline", body)
        assert (made["digest"], made["by"], made["authors"]) == (digest, "ria", ["ria"])
    assert listed(ria) == [(digest, ["ria"])]
    assert listed(eve) == [(digest, ["eve"]), (earlier, ["eve"])]
    assert dict(listed(vault))[digest] == ["eve", "ria"]
    assert "by eve, ria, submitted" in review_lines(seen(vault, digest))[0]
    assert '"eve"' not in json.dumps(seen(ria, digest))
    # what has changed since an earlier program of another author is not theirs to see
    assert seen(ria, digest)["changes"] is None
    assert seen(eve, digest)["changes"]["digest"] == earlier
    decided(vault, digest)  # for everybody who has handed it in
    assert [seen(user, digest)["state"] for user in (ria, eve)] == ["approved"] * 2
    assert vault.call("submit-pipeline", body)["authors"] == ["eve", "ria", "owner"]


def test_a_program_that_waits_is_approved_once_its_data_sets_owner_hands_it_in_too(
    vault: OpenVault,
) -> None:
    ria = as_user(vault, "ria")
    digest, declined = submitted(ria), submitted(ria, SOURCE + "# more\n")
    decided(vault, declined, "declined")
    assert seen(ria, digest)["state"] == "waiting"
    assert (submitted(vault), submitted(vault, SOURCE + "# more\n")) == (digest, declined)
    assert [seen(ria, one)["state"] for one in (digest, declined)] == ["approved", "declined"]


@needs_bubbles
def test_another_authors_trial_changes_nothing_for_an_author(vault: OpenVault) -> None:
    ria, eve = as_user(vault, "ria"), as_user(vault, "eve")
    digest = submitted(eve)
    submitted(ria)
    decided(vault, digest)
    terms: dict[str, Any] = {"data_set": "town", "pipeline": digest, "epsilon": 1}
    priced = {**terms, "take": "auto"}

    def price(user: Any) -> str:
        return str(user.call("price-pipeline", priced)["chosen_by"])

    eve.call("plan-pipeline", {**terms, "people": 20, "seed": "eve-1"})
    assert "seed eve-1" in price(eve)
    assert code_of(lambda: price(ria)) == "bad-pipeline"
    assert seen(ria, digest)["trial"] is None
    assert "not tried" in seen(ria, digest)["warnings"][0]
    assert seen(vault, digest)["trial"]["by"] == "eve"
    ria.call("plan-pipeline", {**terms, "people": 20, "seed": "ria-1"})
    assert ["seed eve-1" in price(eve), "seed ria-1" in price(ria)] == [True, True]
    assert [seen(user, digest)["trial"]["by"] for user in (eve, ria, vault)] == [
        "eve",
        "ria",
        "ria",
    ]
    vault.call("plan-pipeline", {**terms, "people": 20, "seed": "owner-1"})
    assert all("seed owner-1" in price(user) for user in (eve, ria, vault))


@needs_bubbles
def test_programs_and_trials_of_earlier_versions_are_read(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "t.csv", ("who", "height"), [("a", 150), ("b", 160)])
    place = make_vault(tmp_path)
    with sfumato.open(place) as vault:
        vault.add("town", source, card(CARD))
        vault.enrol("ria", "researchers")
        ria = as_user(vault, "ria")
        digest = submitted(ria)
        terms = {"data_set": "town", "pipeline": digest, "epsilon": 1, "people": 20, "seed": "1"}
        ria.call("plan-pipeline", terms)
        with cast("SqlPipelines", vault.house.desk.pipelines.store)._records.change() as link:
            link.change("DROP TABLE pipeline_authors")  # earlier versions had none
            for table in ("trials", "choices", "plans"):  # and knew a program by its digest alone
                sql = f"SELECT COUNT(*) FROM pipeline_{table} WHERE digest = ?"
                assert link.rows(sql, (digest,))[0][0] > 0
    with sfumato.open(place) as vault:
        ria = as_user(vault, "ria")
        found = seen(ria, digest)
        assert (found["authors"], found["trial"]["by"]) == (["ria"], "ria")
        priced = {"data_set": "town", "pipeline": digest, "epsilon": 1, "take": "auto"}
        assert "seed 1" in ria.call("price-pipeline", priced)["chosen_by"]


def test_only_the_last_trials_of_an_author_are_kept(vault: OpenVault) -> None:
    reviews = vault.house.desk.pipelines.reviews
    made = [Submitted(f"d{place}", "town", "{}", "ria", "") for place in range(MAX_TRIALS + 2)]
    for one in made:
        reviews.keep_trial(one, "ria", {})
    kept = [one for one in made if reviews.store.trial("town", one.digest) is not None]
    assert len(kept) == MAX_TRIALS
    assert kept[-1] == made[-1]


@needs_bubbles
def test_a_run_is_listed_and_its_answer_shown_again_after_the_program_was_declined(
    vault: OpenVault,
) -> None:
    ria, eve = as_user(vault, "ria"), as_user(vault, "eve")
    digest = submitted(ria)
    decided(vault, digest)
    body = {"data_set": "town", "pipeline": digest, "op": "first", **TERMS}
    answer = ria.call("run-pipeline", body)
    decided(vault, digest, "declined")
    (one,) = ria.call("pipeline-runs", {"data_set": "town"})["runs"]
    assert (one["op"], one["state"], one["pipeline"]) == ("first", "answered", digest)
    at: dict[str, object] = {"data_set": "town", "op": "first"}
    again = ria.call("pipeline-answer", at)
    assert again["rows"] == answer["rows"]
    assert again["receipt"]["seq"] == one["entry"]
    assert len(vault.house.ledger.store.charges(2**40, 10)) == 1  # nothing was charged again
    assert repr(ria.answer("first")) == repr(Answer.of(again))  # as `sfumato answer` finds it
    with pytest.raises(Refused, match="sfumato history"):
        eve.answer("first")
    assert eve.call("pipeline-runs", {"data_set": "town"})["runs"] == []
    elsewhere = {**at, "data_set": "other"}
    assert code_of(lambda: eve.call("pipeline-answer", at)) == "answer-unknown"
    assert code_of(lambda: vault.call("pipeline-answer", at)) == "answer-unknown"
    assert code_of(lambda: ria.call("pipeline-answer", elsewhere)) == "answer-unknown"


SPREAD = """
def spread(rows):
    import numpy

    return {"mean": rows["height"].mean(), "share": numpy.array([0.25, 0.75])}
"""
TERMS_OF_RUNS: tuple[dict[str, Any], ...] = (
    {"split": {"mean": 3}},
    {"error": {"mean": 30}},
    {"error": {"mean": 30, "share": 0.5}, "delta": 1e-6},
    {"delta": 1e-6, "split": {"share": 7}},
    {"take": "median"},
    {"trim": 1, "cpu_s": 0.7, "disk_mb": 32},
)


@needs_bubbles
def test_an_answer_is_shown_again_whatever_the_terms_of_its_run_were(vault: OpenVault) -> None:
    """The run is rebuilt from the ledger's exact numbers, so the same request is found."""
    share = {"name": "share", "lower": 0, "upper": 1, "step": 0.01, "shape": [2]}
    outputs: list[object] = [*OUTPUTS, share]
    digest = submitted(vault, SPREAD, name="spread", outputs=outputs)
    vault.call("plan-pipeline", {"data_set": "town", "pipeline": digest, "epsilon": 60})
    for place, more in enumerate((*TERMS_OF_RUNS, {"take": "auto", "blocks": None})):
        terms = {"epsilon": 60, "blocks": 4, "cpu_s": 2, "op": f"run {place}", **more}
        named = {"data_set": "town", "pipeline": digest}
        first: Any = vault.call("run-pipeline", {**named, **terms})
        again: Any = vault.call("pipeline-answer", {"data_set": "town", "op": f"run {place}"})
        for field in ("rows", "arrays", "std", "interval"):
            assert again[field] == first[field], more
        for field in ("pipeline", "chosen_by", "rule", "says"):
            assert again["receipt"].get(field) == first["receipt"].get(field), more


@needs_bubbles
def test_a_run_that_is_begun_as_a_job_is_paid_once(vault: OpenVault) -> None:
    ria = as_user(vault, "ria")
    digest = submitted(ria)
    body = {"data_set": "town", "pipeline": digest, "op": "first", **TERMS}
    assert code_of(lambda: ria.call("begin-pipeline-run", body)) == "pipeline-waits"
    assert ria.call("jobs", {})["jobs"] == []
    decided(vault, digest)
    job = ria.call("begin-pipeline-run", body)
    assert (job["kind"], job["state"]) == ("run", "done")
    assert ria.call("begin-pipeline-run", body)["job"] == job["job"]
    assert len(ria.call("pipeline-runs", {"data_set": "town"})["runs"]) == 1


# --- what has changed ------------------------------------------------------------------------


def program(source: str, by: str = "ria", **more: Any) -> Submitted:
    said = {
        "kind": "function", "name": "mean", "source": source, "columns": ["height"],
        "environment": "house",
        "outputs": [{"name": "m", "lower": "0", "upper": "9", "step": "1", "path": "a", "at": []}],
        **more,
    }  # fmt: skip
    digest = f"{by} {json.dumps(said)}"
    return Submitted(digest, "town", json.dumps(said), by, "now", APPROVED, decided_at="1")


def test_changes_show_the_lines_of_text_and_the_declaration() -> None:
    lines = [f"line {place}" for place in range(30)]
    old = program("\n".join(lines))
    new = program("\n".join([*lines[:20], "another", *lines[21:]]), columns=["height", "age"])
    found: Any = changes_json(old, new)
    assert [line for line in found["text"] if line[:1] in "+-"] == ["-line 20", "+another"]
    assert found["text"][0] == "@@ -18,7 +18,7 @@"
    assert [line for line in found["terms"] if line[:1] in "+-"] == ["+column: age"]


ODD = {"org.opencontainers.image.title": "a tool", "odd\x1b[0m": "a\nb \u202e \ud800"}


PLACED = [{**OUTPUTS[0], "path": "m.txt", "at": [0]}]
OF_IMAGE: dict[str, Any] = {
    "source": "", "kind": "program", "name": "group", "outputs": PLACED,
}  # fmt: skip


@pytest.fixture
def images(vault: OpenVault, tmp_path: Path) -> Iterator[list[str]]:
    """Return the names of two images of the same files, with other labels and settings."""
    made = []
    for place, settings in (("one", {"A": "1"}), ("two", {"A": "1", "B": "2"})):
        labels = {**ODD, "org.opencontainers.image.revision": place}
        files = [tar_of([member("run", b"x")])]
        said: Any = {"labels": labels, "settings": settings, "entry": ["/run"], "user": "7:7"}
        digest = layout(tmp_path / place, files, **said)
        made.append(vault.environments.add_image(tmp_path / place, digest, "of a test").name)
    yield made
    for name in made:
        vault.environments.remove(name)


def test_the_review_shows_what_an_image_says_about_itself(
    vault: OpenVault, images: list[str]
) -> None:
    digests = [submitted(vault, environment=name, **OF_IMAGE) for name in images]
    decided(vault, digests[0])
    first, second = (seen(vault, digest) for digest in digests)
    known = first["environment_facts"]
    assert (known["user"], known["source"]) == ("7:7", "")
    assert known["manifest"] == images[0].replace("image-", "sha256:")
    lines = environment_lines(known)
    assert "as user: 7:7" in lines
    assert f"manifest: {known['manifest']}" in lines
    assert 'label org.opencontainers.image.title: "a tool"' in lines
    assert r'label "odd\u001b[0m": "a\nb \u202e ?"' in lines
    changed = [line for line in second["changes"]["environment"] if line[:1] in "+-"]
    assert changed == [
        f"-manifest: {images[0].replace('image-', 'sha256:')}",
        f"+manifest: {images[1].replace('image-', 'sha256:')}",
        '+setting: "B=2"',
        "-label org.opencontainers.image.revision: one",
        "+label org.opencontainers.image.revision: two",
    ]
    shown = review_lines(second)
    assert "  +label org.opencontainers.image.revision: two" in shown
    assert "    as user: 7:7" in shown
    assert all(line.isprintable() for line in shown)


def test_an_image_is_compared_with_no_image_and_not_with_one_that_is_gone(
    vault: OpenVault, images: list[str]
) -> None:
    plain = submitted(vault, "pass", kind="program", name="group", outputs=PLACED)
    decided(vault, plain)
    again = submitted(vault, "pass\n", kind="program", name="group", outputs=PLACED)
    assert "environment" not in seen(vault, again)["changes"]
    first = submitted(vault, environment=images[0], **OF_IMAGE)
    assert "+as user: 7:7" in seen(vault, first)["changes"]["environment"]
    decided(vault, first)
    second = submitted(vault, environment=images[1], **OF_IMAGE)
    vault.environments.remove(images.pop(0))
    found = seen(vault, second)
    assert found["changes"]["environment"] is None
    assert any("so they are not compared" in line for line in review_lines(found))


def test_the_same_text_has_no_changes_and_a_very_long_one_is_not_compared() -> None:
    found: Any = changes_json(program("a\nb"), program("a\nb"))
    assert (found["text"], found["terms"]) == ([], [])
    long = "\n".join(str(place) for place in range(MAX_COMPARED + 5))
    found = changes_json(program("a\nb"), program(long))
    assert found["text"] is None


def test_a_program_is_compared_with_the_same_authors_approved_one_of_its_name() -> None:
    now = program("now")
    others = [program("x", by="eve"), replace(program("x"), state="waiting"), now]
    assert approved_before(now, others) is None
    older = program("older")
    assert approved_before(now, [*others, older, program("x", name="other")]) == older


def group(source: str, file: str, **more: Any) -> Submitted:
    named = {"file": file} if file else {}
    return program(source, **{"kind": "program", "name": "group", **named, **more})


def test_a_program_of_another_file_is_no_earlier_version() -> None:
    """Commands and the console call every program `group`: only its file tells one from another."""
    alpha, beta = group("a", "alpha.py"), replace(group("b", "beta.py"), decided_at="2")
    assert approved_before(group("a2", "alpha.py"), [alpha, beta]) == alpha
    assert approved_before(group("a2", "alpha.py", kind="bids"), [alpha, beta]) == alpha
    images = [f"house+image-{letter * 64}" for letter in "ab"]
    first, second = (group("", "", environment=image) for image in images)
    second = replace(second, decided_at="2")
    newer = f"newer{images[0].removeprefix('house')}"  # this machine's libraries have changed
    assert approved_before(group("", "", environment=newer), [first, second]) == first


def test_a_new_file_name_hides_no_change() -> None:
    """The author's last approved program is shown with its name, whatever the new one is called."""
    old, last = group("a", "alpha.py"), replace(group("b", "beta.py"), decided_at="2")
    renamed = group("b\nevil", "gamma.py")
    before = approved_before(renamed, [last, old])
    assert before == last
    found: Any = changes_json(last, renamed)
    assert (found["title"], found["is_same_name"]) == ("beta.py", False)
    assert found["text"][-1] == "+evil"
    found = changes_json(last, group("b\nmore", "beta.py"))
    assert found["is_same_name"] is True


def test_the_checklist_is_read_in_its_own_order() -> None:
    names = list(CHECKLIST)
    assert read_checked(names[::-1], None) == (tuple(names), "")


@needs_bubbles
def test_nobody_confirms_a_trial_that_never_was(vault: OpenVault) -> None:
    digest = submitted(as_user(vault, "ria"))
    questions = [one["id"] for one in seen(vault, digest)["checklist"]]
    assert "untried" in questions
    assert "trial" not in questions
    with pytest.raises(Refused, match="No trial of this program on synthetic people is on record"):
        decided(vault, digest, checked=["text", "trial"])
    assert seen(vault, digest)["state"] == "waiting"
    planned = {"data_set": "town", "pipeline": digest, "epsilon": 1, "people": 20}
    as_user(vault, "ria").call("plan-pipeline", planned)
    assert [one["id"] for one in seen(vault, digest)["checklist"]] == list(asked_of(is_tried=True))
    assert decided(vault, digest, checked=["text", "trial"])["checked"] == ["text", "trial"]


def test_a_program_is_called_by_its_file_which_is_no_part_of_its_digest(vault: OpenVault) -> None:
    digest = submitted(vault, file="mean_height.py")
    assert submitted(vault, file="another.py") == digest
    listed: Any = vault.call("pipelines", {"data_set": "town"})
    assert [one["title"] for one in listed["pipelines"]] == ["mean in mean_height.py"]
    for bad in ("", "x" * 101, "a\x1b[0m"):
        with pytest.raises(Refused, match="the name of its file"):
            submitted(vault, file=bad)


# --- the commands ----------------------------------------------------------------------------


def test_the_commands_show_the_review_and_the_author_reads_the_reason(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "t.csv", ("who", "height"), [("n1", 150), ("n2", 160)])
    folder = make_vault(tmp_path)
    with sfumato.open(folder) as made:
        made.add("town", source, card(CARD))
        made.enrol("ria", "researchers")
    (tmp_path / "mean.py").write_text(SOURCE)
    (tmp_path / "next.py").write_text(SOURCE.replace("'seen'", "'looked'"))
    digests = []
    for name in ("mean.py", "next.py"):
        given = (str(tmp_path / name), "--function", "mean", "--output", "mean:100:220:1")
        sent = run(folder, "pipeline", "submit", "town", *given, "--user", "ria", "--json")
        digests.append(json.loads(sent.stdout)["digest"])
    approve = ("pipeline", "approve", "town", digests[0], "--most-epsilon", "1")
    assert "You confirmed no question" in run(folder, *approve).stdout
    untried = run(folder, *approve, "--checked")
    assert untried.returncode == 3
    assert "No trial of this program on synthetic people is on record" in untried.stderr
    assert f"sfumato pipeline plan town {digests[0][:12]} --epsilon 1" in untried.stderr
    approved = run(folder, *approve, "--checked", "--untried")
    assert approved.stdout == (
        f"Approved mean in mean.py ({digests[0][:12]}) up to epsilon 1 a run. Its author may run "
        "it now.\n"
    )
    shown = run(folder, "pipeline", "show", "town", digests[1]).stdout
    assert f"\nChanges since {digests[0][:12]}, approved " in shown
    assert "  +    print('looked')" in shown
    assert "    2      print('looked')" in shown
    assert all(question in shown for question in asked_of(is_tried=False).values())
    as_program = (str(tmp_path / "next.py"), "--output", "mean:100:220:1@mean.txt#0")
    sent = run(folder, "pipeline", "submit", "town", *as_program, "--user", "ria", "--json")
    renamed = run(folder, "pipeline", "show", "town", json.loads(sent.stdout)["digest"]).stdout
    assert (
        "The author has no other approved program called next.py. Changes since the author's last "
        f"approved program, mean in mean.py, {digests[0][:12]}, approved "
    ) in renamed
    run(folder, "pipeline", "decline", "town", digests[1], "--reason", "look at nothing")
    listed = run(folder, "pipeline", "list", "town", "--user", "ria").stdout
    assert "  reason: look at nothing\n" in listed
    assert f"  confirmed: {', '.join(asked_of(is_tried=False))}" in listed
