"""Asking again, and subtracting: they win where noise is new and free, and are stopped by ours."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato
from sfumato.client.vault import DataSet
from sfumato.dp.refusal import Refused
from sfumato.lab.attack_report import SuccessRate
from sfumato.lab.attack_target import Called, Forgetful, Opened
from sfumato.lab.attacks import attack
from sfumato.lab.attacks.averaging import average, average_in_other_words, padded
from sfumato.lab.attacks.differencing import difference
from sfumato.lab.probe import is_one_noise, probe
from sfumato.lab.running_mean_plot import means_so_far
from sfumato.lab.success_rate_bounds import guessing_bound
from support.served_vault import served
from support.small_vaults import open_with, patients_vault, write_csv

COUNT = "SELECT COUNT(*) AS n FROM patients WHERE zip = '10001'"
WITHOUT = f"{COUNT} AND salary <> 20388"  # patient 4 of the file, and nobody else
TRUE, TRUE_WITHOUT = 100, 99
EPSILON = 0.1  # ten such questions fit the user's cap


def dice(seed: int = 20261121) -> np.random.Generator:
    return np.random.default_rng(seed)


def exact(sql: str) -> int:
    return TRUE_WITHOUT if "salary" in sql else TRUE


def naive() -> Forgetful:
    return Forgetful(exact, dice())


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[DataSet]:
    with sfumato.open(patients_vault(tmp_path, "ada"), user="ada") as vault:
        yield vault["patients"]


@pytest.fixture(scope="module")
def remotes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, DataSet]]:
    """Return the data set of a real service, for a user each with a cap of their own."""
    vault = patients_vault(tmp_path_factory.mktemp("served"), "ada", "ben")
    with served(vault) as running:
        tokens = {name: running.user(name, "researcher") for name in ("ada", "ben")}
        opened = {n: sfumato.connect(running.url, token=token) for n, token in tokens.items()}
        yield {name: vault["patients"] for name, vault in opened.items()}
        for one in opened.values():
            one.close()


def test_a_target_without_memory_loses_the_exact_count() -> None:
    found = average(naive(), COUNT, epsilon=1, questions=200)
    assert (round(found.estimate), found.stopped_by, found.questions) == (TRUE, "nothing", 200)
    assert found.finding.startswith("Not stopped: 200 questions were answered")


def test_as_many_repeats_as_theory_says_give_the_exact_count() -> None:
    rights = [
        round(average(Forgetful(exact, dice(s)), COUNT, epsilon=1, questions=31).estimate) == TRUE
        for s in range(300)
    ]
    assert 0.9 < np.mean(rights) < 0.99


def test_a_target_without_memory_loses_one_person_by_differences() -> None:
    found = difference(naive(), COUNT, WITHOUT, epsilon=1, pairs=200)
    assert (round(found.estimate), found.stopped_by, found.questions) == (1, "nothing", 400)


def test_a_function_is_a_target() -> None:
    assert difference(Called(lambda sql, _: exact(sql)), COUNT, WITHOUT, epsilon=1).estimate == 1


def test_a_vault_stops_repeats_by_giving_the_same_numbers(embedded: DataSet) -> None:
    found = average(Opened(embedded), COUNT, epsilon=EPSILON, questions=50)
    assert (found.stopped_by, len(set(found.numbers)), found.questions) == ("free repeats", 1, 50)
    assert embedded.budget["spent"]["epsilon"] == pytest.approx(EPSILON)


def test_a_vault_stops_new_noise_by_the_budget(embedded: DataSet) -> None:
    found = average(Opened(embedded, is_fresh=True), COUNT, epsilon=EPSILON, questions=50)
    assert (found.stopped_by, found.questions) == ("the budget", 10)
    assert found.finding == (
        "Stopped by the budget: 10 questions were answered, and the next one was refused."
    )


def test_a_vault_stops_the_question_in_other_words_by_the_budget(embedded: DataSet) -> None:
    texts = padded(COUNT, "age", 90)
    found = average_in_other_words(Opened(embedded), texts, epsilon=EPSILON, questions=50)
    assert (found.stopped_by, found.questions) == ("the budget", 10)


def test_a_vault_knows_the_question_in_other_spelling(embedded: DataSet) -> None:
    spelled = (COUNT.replace("=", " " * (n % 7) + "=").replace("AS n", "as n") for n in range(50))
    found = average_in_other_words(Opened(embedded), spelled, epsilon=EPSILON)
    assert (found.stopped_by, len(set(found.numbers))) == ("free repeats", 1)


def test_a_vault_stops_differences_by_free_repeats(embedded: DataSet) -> None:
    found = difference(Opened(embedded), COUNT, WITHOUT, epsilon=EPSILON, pairs=25)
    assert (found.stopped_by, len(set(found.numbers)), found.questions) == ("free repeats", 1, 50)
    assert embedded.budget["spent"]["epsilon"] == pytest.approx(2 * EPSILON)


def test_a_vault_stops_new_differences_by_the_budget(embedded: DataSet) -> None:
    target = Opened(embedded, is_fresh=True)
    found = difference(target, COUNT, WITHOUT, epsilon=EPSILON, pairs=25)
    assert (found.stopped_by, found.questions) == ("the budget", 10)


def test_a_service_stops_both_by_free_repeats(remotes: dict[str, DataSet]) -> None:
    target = Opened(remotes["ada"])
    again = average(target, COUNT, epsilon=EPSILON, questions=12)
    pairs = difference(target, COUNT, WITHOUT, epsilon=EPSILON, pairs=12)
    assert (again.stopped_by, pairs.stopped_by) == ("free repeats", "free repeats")
    assert remotes["ada"].budget["spent"]["epsilon"] == pytest.approx(2 * EPSILON)


def test_a_service_stops_new_noise_by_the_budget(remotes: dict[str, DataSet]) -> None:
    found = average(Opened(remotes["ben"], is_fresh=True), COUNT, epsilon=EPSILON, questions=50)
    assert (found.stopped_by, found.questions) == ("the budget", 10)


def test_the_attack_ends_where_the_budget_first_says_no() -> None:
    asked: list[str] = []

    def ask(sql: str, _epsilon: object) -> float:
        asked.append(sql)
        if len(asked) == 3:
            raise Refused("budget-exceeded", "Too much.", "Ask for less.")
        return float(len(asked))

    found = average(Called(ask), COUNT, epsilon=1, questions=9)
    assert (found.numbers, found.stopped_by, len(asked)) == ((1.0, 2.0), "the budget", 3)


def test_what_is_refused_for_another_reason_is_raised(embedded: DataSet) -> None:
    with pytest.raises(Refused) as refused:
        average(Opened(embedded), "SELECT name FROM patients", epsilon=EPSILON)
    assert refused.value.code != "budget-exceeded"


def test_an_answer_of_several_numbers_is_refused(embedded: DataSet) -> None:
    with pytest.raises(Refused, match="exactly one row and one column"):
        Opened(embedded).ask("SELECT zip, COUNT(*) AS n FROM patients GROUP BY zip", EPSILON)


@given(st.integers(2, 60), st.sampled_from([0.1, 1.0, 3.0]))
def test_equal_numbers_are_one_noise_only_where_luck_would_not_do(
    count: int, epsilon: float
) -> None:
    by_luck = np.tanh(epsilon / 2) ** (count - 1)
    assert is_one_noise([7.0] * count, epsilon) == (by_luck < 1e-6)
    assert not is_one_noise([7.0] * count + [8.0], epsilon)


def test_a_count_without_a_doubt_is_not_taken_for_a_repeat() -> None:
    found = average(naive(), COUNT, epsilon=30, questions=100)
    assert (set(found.numbers), found.stopped_by) == ({float(TRUE)}, "nothing")


def test_new_noise_is_hardly_ever_taken_for_a_repeat() -> None:
    same = probe(lambda _: 7.0, repeat("q"), epsilon=0.1, most=6)
    assert same.stopped_by == "free repeats"
    targets = [Forgetful(exact, dice(seed)) for seed in range(200)]
    found = {average(one, COUNT, epsilon=0.1, questions=6).stopped_by for one in targets}
    assert found == {"nothing"}


def test_the_picture_of_repeats_draws_every_answer_and_the_mean_so_far() -> None:
    probes = {"two": probe(lambda _: 4.0, repeat("q"), epsilon=1, most=2)}
    picture = means_so_far({**probes, "naive": average(naive(), COUNT, epsilon=1)}, truth=TRUE)
    rows = picture.spec["data"]["values"]  # type: ignore[index]  # a spec is JSON
    assert [row for row in rows if row["panel"] == "two"] == [
        {"panel": "two", "answer": place, "number": 4.0, "mean": 4.0} for place in (1, 2)
    ]
    drawn = [row for row in rows if row["panel"] == "naive"]
    assert drawn[-1]["mean"] == pytest.approx(np.mean([row["number"] for row in drawn]))
    assert picture.cells[0] == ("two", "4.00", "-", "-", "-")


def test_the_report_shows_repeats_that_find_the_truth_and_repeats_that_do_not() -> None:
    (picture,) = attack("averaging").report(runs=10, seed=1).pictures
    assert "new noise each time: Not stopped" in picture.summary
    assert "ours: Stopped by free repeats: 200 questions" in picture.summary


# --- one grouped question to a real vault is a thousand trials ----------------------------------

KEYS = [f"k{number:04d}" for number in range(1000)]
OTHERS = 5
CARD = """
unit = "row"
people = "canaries"
version = "1"
budget = { epsilon = 60, delta = 0 }
[columns.height]
type = "number"
lower = 0
upper = 200
step = 1
[columns.k]
type = "text"
keys = """


@pytest.fixture(scope="module")
def canaries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DataSet, list[int]]]:
    """Return a data set with a canary by the toss of a coin in each of a thousand groups."""
    folder = tmp_path_factory.mktemp("canaries")
    tossed = dice(3).integers(0, 2, len(KEYS)).tolist()
    rows = [
        (key, 200) for key, is_in in zip(KEYS, tossed, strict=True) for _ in range(OTHERS + is_in)
    ]
    source = write_csv(folder / "rows.csv", ("k", "height"), rows)
    with open_with(folder, "canaries", source, CARD + str(KEYS)) as vault:
        yield vault["canaries"], tossed


@pytest.mark.parametrize("epsilon", [0.1, 1, 10])
@pytest.mark.parametrize(("asked", "size"), [("COUNT(*)", 1), ("SUM(height)", 200)])
def test_through_the_real_door_nobody_is_told_beyond_the_bound(
    canaries: tuple[DataSet, list[int]], asked: str, size: int, epsilon: float
) -> None:
    data_set, tossed = canaries
    answer = data_set.ask(f"SELECT k, {asked} AS n FROM canaries GROUP BY k", epsilon=epsilon)
    seen = {str(key): float(str(number)) for key, number in answer.rows}
    told = [seen[key] - size * OTHERS > size / 2 for key in KEYS]
    hits = sum(guess == is_in for guess, is_in in zip(told, tossed, strict=True))
    bound = guessing_bound(float(epsilon))
    assert not SuccessRate("ours", hits, len(KEYS), bound=bound).is_above_bound(1 - 2 * 0.001 / 6)
    assert hits / len(KEYS) > bound - 0.2  # the canaries are there, and the attack works
