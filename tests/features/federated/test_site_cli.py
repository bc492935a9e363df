"""`sfumato site`: what it refuses before anything is served; served, it is tried in federated/."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.small_vaults import run


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (("--data", "ages=none.csv"), 2),
        (("--card", __file__), 2),
        (("--data", "ages", "--card", __file__), 2),
        (("--data", "ages=nowhere.csv", "--card", __file__), 2),
    ],
)
def test_rows_come_with_their_card(tmp_path: Path, given: tuple[str, ...], status: int) -> None:
    assert run(tmp_path / "vault", "site", *given).returncode == status
    assert not (tmp_path / "vault").exists()
