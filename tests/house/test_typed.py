"""A user's type checker sees the types of sfumato, and what it would be refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".mypy_cache" / "of-a-user"  # kept: the first run reads the whole package
USER = """
import sfumato
from sfumato import col

with sfumato.open("vault") as vault:
    reveal_type(vault["visits"].ask("SELECT COUNT(*) FROM visits", epsilon=1))
    reveal_type(vault["visits"].where(col("age") > 18).group_by("zip").count())
    reveal_type(vault["visits"].count().price(error={"count": 5}))
    reveal_type(vault["visits"].columns)
    vault["visits"].ask("SELECT COUNT(*) FROM visits", eps=1)
    vault["visits"].groupby("zip")
with sfumato.connect("https://example.org", token="t") as remote:
    reveal_type(remote["visits"].linear("cost", ["age"], epsilon=1))


async def asked() -> None:
    async with sfumato.connect_async("https://example.org", token="t") as vault:
        reveal_type(await vault["visits"].ask("SELECT COUNT(*) FROM visits", epsilon=1))
"""
REVEALED = {
    6: "sfumato.client.answer.Answer",
    7: "sfumato.client.query_builder.Builder",
    8: "sfumato.client.display.Price",
    9: "tuple[str, ...]",
    13: "sfumato.features.regression.fit_result.Fit",
    18: "sfumato.client.answer.Answer",
}


def test_mypy_sees_the_types_in_a_users_file(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER)
    flags = ("--strict", "--config-file=", "--cache-dir", str(CACHE))
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *flags, "user.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    told = [f'user.py:{line}: note: Revealed type is "{kind}"' for line, kind in REVEALED.items()]
    said = ran.stdout.splitlines()
    assert [line for line in said if "Revealed" in line] == told, ran.stdout + ran.stderr
    assert [line.partition("  [")[0] for line in said if " error: " in line] == [
        'user.py:10: error: Unexpected keyword argument "eps" for "ask" of "DataSet"',
        'user.py:11: error: "DataSet" has no attribute "groupby"',
    ]
