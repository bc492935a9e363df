"""The airlock's requests: whatever people try, nothing leaves that enough others have not seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.refusal import Refused
from sfumato.features.airlock import model as airlock_model
from sfumato.features.airlock.model import (
    EXPIRED,
    FAILED,
    NO,
    OPEN,
    REJECTED,
    RELEASED,
    REVIEW,
    WAITING,
    YES,
    DraftFiles,
    Request,
    Vote,
    seal_of,
)

AT, LATER, ENDS = (
    "2026-01-02T00:00:00+00:00",
    "2026-03-01T00:00:00+00:00",
    "2026-02-01T00:00:00+00:00",
)
PEOPLE = ("ada", "owner", "rita", "rolf", "rosa", "eve")
NEW = Request(
    id="r1",
    data_set="town",
    people="town",
    version="1",
    author="ada",
    owner="owner",
    reviewers=("rita", "rolf", "rosa"),
    needed=2,
    program="{}",
    why="",
    at=AT,
    expires=ENDS,
)


def in_review(request: Request = NEW) -> Request:
    return airlock_model.to_review(airlock_model.begun(request, request.owner), "place")


def vote(request: Request, user: str, says: str = YES, seal: str = "s", draft: int = 0) -> Request:
    word = Vote(user, says, seal, draft or request.draft, AT)
    return airlock_model.voted(request, word, "s")


def code(request: Request, user: str, says: str = YES, seal: str = "s", draft: int = 0) -> str:
    with pytest.raises(Refused) as refused:
        vote(request, user, says, seal, draft)
    return refused.value.code


def is_out(request: Request, seal: str = "s") -> bool:
    try:
        return airlock_model.release(request, "owner", AT, seal).state == RELEASED
    except Refused:
        return False


def test_two_others_let_it_out_and_one_does_not() -> None:
    one = vote(in_review(), "rita")
    assert not is_out(one)
    assert not is_out(vote(one, "rita"))  # one person has one vote
    assert is_out(vote(one, "rolf"))


def test_its_author_has_no_vote_even_as_a_named_reviewer_or_the_owner() -> None:
    named = replace(NEW, reviewers=("ada", "rita"))
    assert code(in_review(named), "ada") == "not-allowed"
    own = in_review(replace(NEW, author="owner"))
    assert code(own, "owner") == "not-allowed"
    forged = replace(
        in_review(named), votes=(Vote("ada", YES, "s", 1, AT), Vote("rita", YES, "s", 1, AT))
    )
    assert not is_out(forged)
    with pytest.raises(Refused):
        airlock_model.release(vote(vote(own, "rita"), "rolf"), "owner", AT, "s")


def test_strangers_are_told_of_nothing() -> None:
    assert code(in_review(), "eve") == "airlock-unknown"
    assert not NEW.may_see("eve")


def test_a_vote_is_on_what_was_seen() -> None:
    assert code(in_review(), "rita", seal="another") == "airlock-changed"
    assert code(in_review(), "rita", draft=7) == "airlock-changed"
    both = vote(vote(in_review(), "rita"), "rolf")
    assert is_out(both)
    assert not is_out(both, "another")  # the bytes, or the findings, are others by now


@pytest.mark.parametrize("act", [airlock_model.replaced, airlock_model.trimmed])
def test_an_edit_takes_every_vote_back(act: object) -> None:
    both = vote(vote(in_review(), "rita"), "rolf")
    made = act(both, "rosa", "new")  # type: ignore[operator]  # two functions of one shape
    assert (made.votes, made.draft) == ((), 2)
    assert not is_out(made)
    assert is_out(vote(vote(made, "rita"), "rolf"))
    against = act(vote(both, "rosa", NO), "rosa", "new")  # type: ignore[operator]  # as above
    again = vote(vote(against, "rita"), "rolf")
    assert not is_out(again)  # she has not said otherwise


def test_an_author_takes_nothing_out() -> None:
    for user, expected in (("ada", "not-allowed"), ("eve", "airlock-unknown")):
        with pytest.raises(Refused, match=expected):
            airlock_model.trimmed(in_review(), user, "new")


def test_who_put_a_file_in_does_not_vote_on_it_and_who_took_one_out_does() -> None:
    made = airlock_model.replaced(in_review(), "rita", "new")
    assert code(made, "rita") == "not-allowed"
    trimmed = airlock_model.trimmed(made, "rolf", "newer")
    assert code(trimmed, "rita") == "not-allowed"  # her file is still in it
    assert is_out(vote(vote(trimmed, "rolf"), "rosa"))
    assert not is_out(vote(replace(made, editors=()), "rolf"))


def test_one_who_is_against_it_holds_it_and_two_end_it() -> None:
    three = vote(vote(vote(in_review(), "rita"), "rolf"), "rosa", NO)
    assert not is_out(three)
    assert is_out(vote(three, "rosa"))  # the last word counts
    assert vote(three, "rolf", NO).state == REJECTED


def test_what_is_over_stays_over() -> None:
    late = airlock_model.expired(in_review(), LATER)
    assert late.state == EXPIRED
    assert airlock_model.expired(in_review(), AT).state == REVIEW
    assert airlock_model.expired(NEW, LATER).state == EXPIRED
    out = airlock_model.release(vote(vote(in_review(), "rita"), "rolf"), "rosa", AT, "s")
    for over in (
        late,
        out,
        airlock_model.withdrawn(NEW, "ada", AT),
        airlock_model.declined(NEW, "owner", AT),
    ):
        assert airlock_model.expired(over, LATER) == over
        acts: tuple[Callable[[Request], Request], ...] = (
            lambda one: airlock_model.begun(one, "owner"),
            lambda one: airlock_model.declined(one, "owner", AT),
            lambda one: airlock_model.withdrawn(one, "ada", AT),
            lambda one: airlock_model.trimmed(one, "rita", "x"),
            lambda one: airlock_model.replaced(one, "rita", "x"),
            lambda one: vote(one, "rita"),
        )
        for act in acts:
            with pytest.raises(Refused):
                act(over)


def test_a_program_runs_once() -> None:
    begun = airlock_model.begun(NEW, "owner")
    for state in (begun, airlock_model.to_review(begun, "p"), airlock_model.failed(begun)):
        with pytest.raises(Refused):
            airlock_model.begun(state, "owner")
    with pytest.raises(Refused):
        airlock_model.begun(NEW, "rita")


def failed() -> Request:
    return airlock_model.failed(airlock_model.begun(NEW, "owner"))


def test_an_author_is_told_that_a_run_failed_by_nobody_but_its_owner() -> None:
    made = failed()
    assert made.is_open
    assert (made.state, made.state_for("owner"), made.state_for("rita")) == (FAILED,) * 3
    assert made.state_for("ada") == airlock_model.begun(NEW, "owner").state_for("ada") == REVIEW
    acts: tuple[Callable[[Request], Request], ...] = (
        lambda one: airlock_model.withdrawn(one, "ada", AT),
        lambda one: airlock_model.declined(one, "owner", AT),
        lambda one: airlock_model.expired(one, LATER),
    )
    for act in acts:
        ended, reviewed = act(made), act(in_review())
        assert not ended.is_open
        assert ended.state_for("ada") == reviewed.state_for("ada") == reviewed.state
        assert (ended.ended_by, ended.ended_at) == (reviewed.ended_by, reviewed.ended_at)


def test_an_author_who_is_the_owner_is_refused_in_the_same_words() -> None:
    own = replace(NEW, author="owner")
    begun = airlock_model.begun(own, "owner")
    said = set()
    for one in (begun, airlock_model.to_review(begun, "p"), airlock_model.failed(begun)):
        with pytest.raises(Refused) as refused:
            airlock_model.begun(one, "owner")
        said.add(str(refused.value))
    assert len(said) == 1


def test_one_that_was_over_when_it_failed_stays_over() -> None:
    old = replace(failed(), ended_at=AT)  # as it was kept by an earlier version
    assert not old.is_open
    assert old.state_for("ada") == FAILED
    assert airlock_model.expired(old, LATER) == old


def test_a_request_is_kept_whole() -> None:
    made = vote(airlock_model.replaced(in_review(), "rosa", "new"), "rita")
    assert Request.of_text(made.as_text()) == made


def test_a_seal_is_of_every_byte_name_and_finding() -> None:
    held = DraftFiles("n", {"a.csv": b"1", "b.csv": b"2"}, "{}")
    others = (
        DraftFiles("m", held.files, ""),
        DraftFiles("n", {"a.csv": b"2", "b.csv": b"1"}, ""),
        DraftFiles("n", {"a.csv": b"1"}, ""),
        DraftFiles("n", {"a.csv": b"1", "c.csv": b"2"}, ""),
    )
    seals = {seal_of(held, "[]"), seal_of(held, "[1]"), *(seal_of(one, "[]") for one in others)}
    assert len(seals) == 6


ACTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["begin", "came", "yes", "no", "trim", "replace", "withdraw", "decline", "out", "late"]
        ),
        st.sampled_from(PEOPLE),
        st.sampled_from(["s1", "s2"]),
    ),
    max_size=30,
)


def tried(request: Request, act: str, user: str, seal: str) -> Request:
    """Return the request after somebody has tried something; a refusal changes nothing."""
    word = Vote(user, {"yes": YES, "no": NO}.get(act, ""), seal, request.draft, AT)
    acts = {
        "begin": lambda: airlock_model.begun(request, user),
        "came": lambda: airlock_model.to_review(request, "p"),
        "yes": lambda: airlock_model.voted(request, word, "s1"),
        "no": lambda: airlock_model.voted(request, word, "s1"),
        "trim": lambda: airlock_model.trimmed(request, user, "p"),
        "replace": lambda: airlock_model.replaced(request, user, "p"),
        "withdraw": lambda: airlock_model.withdrawn(request, user, AT),
        "decline": lambda: airlock_model.declined(request, user, AT),
        "out": lambda: airlock_model.release(request, user, AT, seal),
        "late": lambda: airlock_model.expired(request, LATER),
    }
    try:
        return acts[act]()
    except Refused:
        return request


@given(acts=ACTS, author=st.sampled_from(PEOPLE[:3]))
@settings(max_examples=300, deadline=None)
def test_whatever_is_tried_only_two_others_who_saw_this_let_it_out(
    acts: list[tuple[str, str, str]], author: str
) -> None:
    request = replace(NEW, author=author)
    since: dict[str, str] = {}  # each one's last word on the draft as it is
    editors: set[str] = set()
    for act, user, seal in [("begin", "owner", ""), ("came", "owner", ""), *acts]:
        before, request = request, tried(request, act, user, seal)
        if request is before:
            continue
        if act in ("trim", "replace", "came"):  # who was against it still is
            since = {user: word for user, word in since.items() if word == "no"}
        if act == "replace":
            editors.add(user)
        if act in ("yes", "no"):
            since[user] = act
        if request.state == RELEASED and before.state != RELEASED:
            yes = {user for user, word in since.items() if word == "yes"}
            assert len(yes) >= 2
            assert author not in yes
            assert not yes & editors
            assert "no" not in since.values()
            assert seal == "s1"
        if before.state not in OPEN:
            assert request.state == before.state
    assert request.state != WAITING
