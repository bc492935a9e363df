"""The bench of a whole request runs: it times steps by their names, which move."""

from __future__ import annotations

import pytest

from bench import request


def test_each_way_of_asking_is_timed_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "WARM", 1)
    lines = request.run(rows=500, questions=2)
    inside, served = lines[:3], lines[3:]
    assert [line["question"] for line in inside] == [name for name, *_ in request.LINES]
    assert all(step in line for line in inside for step, *_ in request.STEPS)
    assert len(served) == len(request.QUANTA_MS)
    assert all("p95 over plain" in line for line in served)
