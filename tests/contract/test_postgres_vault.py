"""A vault whose ledger lies in a real PostgreSQL asks, repeats and refuses like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

import sfumato
from sfumato.dp.refusal import Refused
from support import postgres_server
from support.small_vaults import PATIENTS_CARD, card, write_patients


def test_a_vault_with_its_ledger_in_postgresql(
    server: postgres_server.Server, tmp_path: Path
) -> None:
    folder = tmp_path / "vault"
    sfumato.create(folder, anchor=tmp_path / "anchor", ledger=server.fresh_url())
    assert not (folder / "ledger.sqlite").exists()
    with sfumato.open(folder) as vault:
        vault.add("clinic", write_patients(tmp_path / "p.csv"), card(PATIENTS_CARD))
        first = vault["clinic"].count().ask(epsilon=0.6)
        assert vault["clinic"].count().ask(epsilon=0.6).rows == first.rows
        with pytest.raises(Refused) as refused:
            vault["clinic"].count().ask(epsilon=0.7)
        assert refused.value.code == "budget-exceeded"
    with sfumato.open(folder) as again:
        assert again["clinic"].budget["spent"]["epsilon"] == 0.6
        assert again.house.ledger.verified()["ok"] is True
