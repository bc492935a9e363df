"""Two services on one vault and one PostgreSQL: they agree, and either may die."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from support import postgres_server
from support.process_tree import PATIENCE_S
from support.served_vault import Service, served, start
from support.service_with_users import peopled_vault, strays
from support.small_vaults import PATIENTS_CARD

FIT = 20  # questions that the user's cap holds, and not one more
TIGHT = PATIENTS_CARD.replace("user = { epsilon = 1.0 }", "user = { epsilon = 0.2 }")
ASK = "/v1/data-sets/patients/ask"


def question(age: int, op: str | None = None) -> dict[str, object]:
    sql = f"SELECT COUNT(*) AS n FROM patients WHERE age > {age}"
    return {"sql": sql, "epsilon": 0.01, **({} if op is None else {"op": op})}


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a vault whose ledger and records lie in a real PostgreSQL."""
    with postgres_server.running() as server:
        folder = tmp_path_factory.mktemp("nodes")
        yield peopled_vault(folder, ledger=server.fresh_url(), text=TIGHT)


@pytest.fixture(scope="module")
def nodes(vault: Path) -> Iterator[tuple[Service, Service]]:
    """Return two services that know the same people."""
    with ExitStack() as held:
        one = held.enter_context(served(vault))
        one.owner()
        one.user("ada", "researcher")
        two = held.enter_context(served(vault))
        two.tokens = one.tokens
        yield one, two
        assert strays(one) == strays(two) == []


def test_the_same_question_has_the_same_numbers_on_both(nodes: tuple[Service, Service]) -> None:
    token = nodes[0].owner()
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda node: node.call("POST", ASK, question(1), token=token), nodes))
    assert [status for status, _ in both] == [200, 200]
    assert both[0][1]["rows"] == both[1][1]["rows"]
    assert [both[0][1]["receipt"]["free"], both[1][1]["receipt"]["free"]].count(False) == 1
    retried = [node.call("POST", ASK, question(2, "once"), token=token)[1] for node in nodes]
    assert retried[0]["rows"] == retried[1]["rows"]


def test_a_cap_is_drained_by_both_to_the_last_question(nodes: tuple[Service, Service]) -> None:
    token = nodes[0].tokens["ada"]

    def ask(number: int) -> int:
        node = nodes[number % 2]
        for _ in range(30):
            status, _ = node.call("POST", ASK, question(number), token=token)
            if status not in (429, 503):
                break
            time.sleep(0.1)
        return status

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(ask, range(10, 10 + 2 * FIT)))
    assert sorted(set(statuses)) == [200, 422]
    assert statuses.count(200) == FIT
    for node in nodes:
        spent = node.call("GET", "/v1/data-sets/patients/budget", token=token)[1]["yours"]
        assert next(iter(spent.values()))["left"]["epsilon"] == pytest.approx(0, abs=1e-6)


def test_a_token_that_one_revokes_opens_nothing_on_the_other(
    nodes: tuple[Service, Service],
) -> None:
    one, two = nodes
    made = one.call("POST", "/v1/tokens", {"label": "lost"}, token=one.owner())[1]
    is_over = threading.Event()

    def keep_warm() -> None:  # a node that remembers a token must forget it by itself
        while not is_over.wait(0.05):
            two.call("GET", "/v1/me", token=made["token"])

    warm = threading.Thread(target=keep_warm)
    warm.start()
    time.sleep(0.5)
    assert two.call("GET", "/v1/me", token=made["token"])[0] == 200
    assert one.call("DELETE", f"/v1/tokens/{made['id']}", token=one.owner())[0] == 200
    begun = time.monotonic()
    while two.call("GET", "/v1/me", token=made["token"])[0] == 200:
        assert time.monotonic() - begun < PATIENCE_S
        time.sleep(0.05)
    is_over.set()
    warm.join()
    assert one.call("GET", "/v1/me", token=made["token"])[0] == 401


def test_a_user_whom_one_blocks_is_out_on_the_other(nodes: tuple[Service, Service]) -> None:
    one, two = nodes
    token = one.user("eve", "researcher")
    assert two.call("GET", "/v1/me", token=token)[0] == 200
    change = {"roles": ["researcher"], "blocked": True}
    assert one.call("PUT", "/v1/users/eve", change, token=one.owner())[0] == 200
    begun = time.monotonic()
    while two.call("GET", "/v1/me", token=token)[0] == 200:
        assert time.monotonic() - begun < PATIENCE_S
        time.sleep(0.05)


def test_a_node_that_dies_takes_nothing_with_it(
    vault: Path, nodes: tuple[Service, Service]
) -> None:
    one, token = nodes[0], nodes[0].owner()
    third = start(vault)
    before = third.call("GET", "/v1/data-sets/patients/budget", token=token)[1]["spent"]
    answered = [third.call("POST", ASK, question(60 + n, f"d{n}"), token=token) for n in range(5)]
    third.kill()
    if third.process.stderr is not None:
        third.process.stderr.close()
    again = [one.call("POST", ASK, question(60 + n, f"d{n}"), token=token) for n in range(5)]
    assert [a[1]["rows"] for a in again] == [a[1]["rows"] for a in answered]
    after = one.call("GET", "/v1/data-sets/patients/budget", token=token)[1]["spent"]
    assert after["epsilon"] - before["epsilon"] == pytest.approx(0.05)
