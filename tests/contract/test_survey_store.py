"""What every store of surveys keeps, in SQLite and in PostgreSQL."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from sfumato.features.surveys.model import read_survey
from sfumato.features.surveys.ports import Ballot, Invited, StoredSurvey, TakeResult
from sfumato.features.surveys.store import STEP, SqlSurveys
from sfumato.features.surveys.tally import Tally, nothing
from sfumato.storage.sqlite_ledger import open_forgetful_records
from support.postgres_server import Server
from support.survey_fixtures import DICE, design

SURVEY = read_survey(design())
Open = Callable[[], SqlSurveys]


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    made: list[SqlSurveys] = []
    url = ""
    if request.param == "postgres":
        server: Server = request.getfixturevalue("server")
        url = server.fresh_url()

    def open_() -> SqlSurveys:
        if url:
            from sfumato.storage.postgres_ledger import open_records

            made.append(SqlSurveys(open_records(url), DICE))
        else:
            made.append(SqlSurveys(open_forgetful_records(tmp_path / "surveys"), DICE))
        return made[-1]

    yield open_
    for one in made:
        one.shut()


@pytest.fixture
def store(opened: Open) -> SqlSurveys:
    made = opened()
    made.add(StoredSurvey("s", "olga", "the text", "open"), 50, nothing(SURVEY))
    return made


def ballots(count: int) -> list[Ballot]:
    return [Ballot("s", DICE.draw(32).hex(), f"0.0.{n % 3} 1.0.{n % 4}") for n in range(count)]


def lines(store: SqlSurveys) -> list[str]:
    found: list[str] = []
    after: str | None = None
    while page := store.shown("s", after):
        found += [line for _, part in page for line in part]
        after = page[-1][0]
    return found


def test_a_survey_is_found_by_its_id_and_by_its_owner(store: SqlSurveys) -> None:
    kept = StoredSurvey("s", "olga", "the text", "open")
    assert (store.find("s"), store.find("t")) == (kept, None)
    assert (store.of("olga"), store.of("otto")) == ((kept,), ())


def test_an_invitation_is_found_by_its_hash(store: SqlSurveys) -> None:
    store.invite((Invited("d2", "s", "a"), Invited("d1", "s", "b")))
    assert store.invited("d1") == Invited("d1", "s", "b")
    assert store.invited("d3") is None
    assert (store.invitations("s"), store.invitations("t")) == (2, 0)


def test_a_report_counts_once_and_another_under_its_token_never(opened: Open) -> None:
    store = opened()
    store.add(StoredSurvey("s", "olga", "the text", "open"), 50, nothing(SURVEY))
    (one,) = ballots(1)
    assert [store.take(one), store.take(one)] == ["counted", "already"]
    assert store.take(Ballot("s", one.token, "0.0.2 1.0.3")) == "spent"
    again = opened()  # another process, or the same after a crash
    assert again.take(one) == "already"
    assert again.standing("s").reports == 1


def test_four_hundred_reports_are_all_there_whatever_the_parts(store: SqlSurveys) -> None:
    made = ballots(400)
    assert {store.take(one) for one in made} == {"counted"}
    assert {store.take(one) for one in made} == {"already"}
    assert store.close("s") is True
    assert lines(store) == sorted(f"{one.token} {one.said}" for one in made)
    told = nothing(SURVEY).with_reports([one.said for one in made])
    assert store.standing("s").shown == told


def test_what_is_shown_moves_on_in_steps(store: SqlSurveys) -> None:
    shown: list[int] = []
    for one in ballots(120):
        store.take(one)
        shown.append(store.standing("s").shown.reports)
    assert sorted(set(shown)) == [0, 50, 75]
    assert [shown.index(50), shown.index(75)] == [74, 99]
    told = nothing(SURVEY).with_reports([line.partition(" ")[2] for line in lines(store)])
    assert store.standing("s").shown == told
    assert told.reports == 75


def test_the_newest_reports_wait_among_others_and_which_is_drawn(store: SqlSurveys) -> None:
    """What came since the last step is not what is there and not shown."""
    made = ballots(400)
    for number, one in enumerate(made, start=1):
        store.take(one)
        shown = {line[:64] for line in lines(store)}
        if shown:
            assert number - len(shown) >= STEP
            assert len(shown) == store.standing("s").shown.reports
    assert shown <= {one.token for one in made}
    waiting = [n for n, one in enumerate(made) if one.token not in shown]
    assert waiting != list(range(waiting[0], 400))  # not the last ones


def test_which_reports_wait_hangs_on_no_order_at_all(opened: Open) -> None:
    """Not on when they came, not on their tokens: any 25 of the 75, one as likely as another.

    The bounds are five deviations of an even draw; the last report, whose token was signed last,
    waits a third of the time: 2 to 28 of 40, or once in 500,000 runs this is wrong.
    """
    runs, store = 40, opened()
    by_coming, by_token, last = [], [], 0
    for run in range(runs):
        survey = f"s{run}"
        store.add(StoredSurvey(survey, "olga", "the text", "open"), 50, nothing(SURVEY))
        made = [Ballot(survey, one.token, one.said) for one in ballots(75)]
        store._take_several(made[:74])
        assert store.take(made[74]) == "counted"
        shown = {line[:64] for _, part in store.shown(survey, None) for line in part}
        waiting = [one.token for one in made if one.token not in shown]
        tokens = sorted(one.token for one in made)
        assert len(waiting) == STEP
        by_coming += [place for place, one in enumerate(made) if one.token in waiting]
        by_token += [tokens.index(one) for one in waiting]
        last += made[74].token in waiting
    deviation = ((75**2 - 1) / 12 / 25 * (50 / 74) / runs) ** 0.5
    assert abs(sum(by_coming) / len(by_coming) - 37) < 5 * deviation
    assert abs(sum(by_token) / len(by_token) - 37) < 5 * deviation
    assert 2 <= last <= 28


def test_a_page_goes_on_where_the_last_one_ended_though_the_parts_were_cut_since(
    store: SqlSurveys,
) -> None:
    made = ballots(260)
    for one in made[:64]:
        store.take(one)
    (whole,) = store.shown("s", None)
    assert whole[0] == ""
    for one in made[64:]:
        store.take(one)
    assert store.shown("s", whole[0]) == ()
    first, *others = [name for name, _ in store.shown("s", None)]
    for one in ballots(600):
        store.take(one)
    rest = [name for name, _ in store.shown("s", first)]
    assert len(rest) > len(others)
    assert not [name for name in rest if name.startswith(first)]


def test_a_closed_survey_takes_no_more(store: SqlSurveys) -> None:
    first, second = ballots(2)
    store.take(first)
    assert (store.close("s"), store.close("s")) == (True, False)
    assert store.take(second) == "closed"
    assert store.take(first) == "already"
    assert store.standing("s").reports == 1


def test_two_nodes_count_what_comes_at_once(opened: Open) -> None:
    nodes = [opened(), opened()]
    nodes[0].add(StoredSurvey("s", "olga", "the text", "open"), 50, nothing(SURVEY))
    made = ballots(150)
    ended: list[TakeResult] = []

    def take(node: SqlSurveys, some: list[Ballot]) -> None:
        ended.extend(node.take(one) for one in some)

    threads = [
        threading.Thread(target=take, args=(node, made[start::3]))
        for node in nodes
        for start in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(ended) == {"counted": 150, "already": 150}
    assert nodes[1].standing("s").reports == 150


def test_two_nodes_add_no_two_surveys_that_do_not_fit(opened: Open) -> None:
    """If both could look before the other has added, both would be in the look at once."""
    nodes, both = [opened(), opened()], threading.Barrier(2)
    nodes[0].add(StoredSurvey("s", "olga", "the text", "open"), 50, nothing(SURVEY))
    added: list[bool] = []

    def is_second(texts: Iterable[str]) -> bool:
        found = list(texts)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.5)
        return len(found) == 1

    def add(number: int) -> None:
        kept = StoredSurvey(f"s{number}", "olga", f"text {number}", "open")
        added.append(nodes[number].add(kept, 50, nothing(SURVEY), fits=is_second))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(added) == [False, True]
    assert len(nodes[0].every()) == 2


def test_tallies_of_two_houses_add_up(store: SqlSurveys) -> None:
    for one in ballots(60):
        store.take(one)
    store.close("s")
    first = store.standing("s").shown
    assert (first + first).reports == 120
    assert isinstance(first + nothing(SURVEY), Tally)
