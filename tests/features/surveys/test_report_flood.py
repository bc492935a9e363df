"""Ten thousand reports, forged, repeated and malformed: none counts twice, and nothing breaks."""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import sfumato
from sfumato.features.surveys.respondent_client import Prepared, shown
from support.served_vault import served
from support.small_vaults import make_vault
from support.survey_fixtures import DICE, TRUTHS, design, device

GOOD, ALL, SENDERS = 60, 10_000, 4


def _good(one: Prepared) -> dict[str, object]:
    token, signature = shown(one.token), shown(one.signature)
    return {"token": token, "signature": signature, "said": one.said}


def _bad(dice: random.Random, good: dict[str, object]) -> bytes:
    """Return a body that is not a good one, or a good one once more."""
    other = DICE.draw(32)
    wrong: list[object] = [
        good,
        {**good, "said": "0.0.2 1.0.3"},
        {**good, "said": dice.choice(["", "0.0.9 1.0.0", "0.0.0", "x", "0.0.0 1.0.0 2.0.0", "٣"])},
        {**good, "token": shown(other)},
        {**good, "signature": shown(DICE.draw(256))},
        {**good, "signature": shown(b"\x00" * 256)},
        {**good, "signature": shown(b"\xff" * 256)},
        {**good, "token": dice.choice(["", "A" * 42, "A" * 44, "=" * 43, "A" * 42 + "B"])},
        {**good, "signature": dice.choice([None, 7, [], {}, True, "A" * 3000])},
        {key: good[key] for key in dice.sample(sorted(good), 2)},
        {**good, "more": 1},
        {**good, "survey": "a" * 32},
        [good], "good", 7, None,
    ]  # fmt: skip
    made = json.dumps(dice.choice(wrong)).encode()
    return dice.choice([made, made, made, made[:-1], b"", b"\xff" + made, b"[" * 500])


def _bodies(ready: list[Prepared]) -> Iterator[bytes]:
    dice = random.Random(7)
    for number in range(ALL):
        yield _bad(dice, _good(ready[number % GOOD]))


def test_ten_thousand_reports_count_once_each_and_nothing_breaks(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    with sfumato.open(vault) as house:
        survey = str(house.call("publish-survey", {"survey": design(minimum=10)})["survey"])
        codes = house.call("invite-to-survey", {"survey": survey, "count": GOOD})["codes"]
        assert isinstance(codes, list)
        ready = [device().prepared(house, survey, code, TRUTHS) for code in codes]
    ended: list[tuple[int, str]] = []
    bodies, lock = _bodies(ready), threading.Lock()

    def send(host: str) -> None:
        line = http.client.HTTPConnection(host, timeout=60)
        headers = {"Content-Type": "application/json"}
        while True:
            with lock:
                body = next(bodies, None)
            if body is None:
                break
            line.request("POST", f"/v1/surveys/{survey}/reports", body, headers)
            reply = line.getresponse()
            ended.append((reply.status, str(json.loads(reply.read()).get("counted", "refused"))))
        line.close()

    with served(vault) as running:
        host = urlsplit(running.url).netloc
        senders = [threading.Thread(target=send, args=(host,)) for _ in range(SENDERS)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        running.call("POST", f"/v1/surveys/{survey}/close", {}, token=running.owner())
        kept = running.call("GET", f"/v1/surveys/{survey}/reports")[1]["reports"]
    statuses = Counter(status for status, _ in ended)
    assert len(ended) == ALL
    assert max(statuses) < 500
    assert set(statuses) <= {200, 400, 409, 413, 422}
    counted = Counter(how for _, how in ended)
    assert counted["now"] == len(kept) == len({one["mark"] for one in kept})
    assert counted["now"] == GOOD  # each of them came, as it is or as another, first or later
    assert counted["before"] > 100
