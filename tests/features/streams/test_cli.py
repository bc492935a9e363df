"""The commands of a stream: open, close, show; for people and as one JSON object."""

from __future__ import annotations

import json
from pathlib import Path

from support.small_vaults import make_vault, run, write_csv

CARD = """
unit = "who"
people = "town"
version = "1"
budget = { epsilon = 3.0 }
[ask]
who = ["researchers"]
[columns.day]
type = "date"
"""
SQL = "SELECT date_trunc('day', day) AS day, RUNNING_COUNT(*) AS n FROM visits GROUP BY day"
TERMS = ("--start", "2026-01-01", "--periods", "60", "--rows", "1", "--epsilon", "1")


def test_a_stream_is_opened_closed_and_shown(tmp_path: Path) -> None:
    vault, table = make_vault(tmp_path), tmp_path / "card.toml"
    rows = [(f"canary-{n}", f"2026-01-0{1 + n % 5}") for n in range(50)]
    table.write_text(CARD)
    source = write_csv(tmp_path / "v.csv", ("who", "day"), rows)
    assert run(vault, "add", "visits", str(source), "--card", str(table)).returncode == 0

    opened = run(vault, "stream", "open", "visits", "daily", SQL, *TERMS)
    assert opened.returncode == 0, opened.stderr
    assert (
        "Charged epsilon 1 for all 60 days. Error at 95 %: ± 6 on the first day, ± 20 at worst."
    ) in (opened.stdout)
    closed = run(vault, "stream", "close", "visits", "daily", "--until", "2026-01-03", "--json")
    assert json.loads(closed.stdout) == {
        "stream": "daily",
        "data_set": "visits",
        "closed_now": 3,
        "closed": 3,
        "of": 60,
        "last": "2026-01-03",
        "version": "1",
    }
    again = run(vault, "stream", "close", "visits", "daily", "--until", "2026-01-03", "--json")
    assert again.returncode == 3
    assert json.loads(again.stdout)["refused"]["code"] == "stream-out-of-order"

    picture = tmp_path / "daily.svg"
    shown = run(vault, "stream", "show", "visits", "daily", "--plot", str(picture))
    assert shown.stdout.count("2026-01-0") == 3
    assert picture.stat().st_size > 1000
    run(vault, "enrol", "ria", "researchers")
    as_ria = run(vault, "stream", "show", "visits", "daily", "--json", "--user", "ria")
    assert [row[0] for row in json.loads(as_ria.stdout)["rows"]] == [
        "2026-01-01",
        "2026-01-02",
        "2026-01-03",
    ]
    assert run(vault, "stream", "close", "visits", "daily", "--user", "ria", "--until",
               "2026-01-04").returncode == 3  # fmt: skip
    for ran in (opened, closed, again, shown, as_ria):
        assert "canary" not in ran.stdout + ran.stderr
