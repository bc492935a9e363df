"""sfumato itself, as a researcher uses it: from the question to the recorded answer."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Final

import sfumato
from bench.peers import script
from sfumato.app.vault import OpenVault
from sfumato.dp.mechanisms.noise import Noise
from sfumato.system.randomness import SystemRandomSource

_CARD: Final[dict[str, object]] = {
    "unit": "who",
    "budget": {"epsilon": 1000, "delta": 1e-2},
    "max_rows": script.MOST_ROWS,
    "limits": {"rows": 10**8},
    "columns": {
        "clinic": {"type": "integer", "keys": list(range(script.CLINICS))},
        "cost": {"type": "number", "lower": 0, "upper": script.LARGEST, "step": Decimal("0.01")},
        "icd": {"type": "text"},
    },
}


def _load(file: str) -> OpenVault:
    folder = Path(tempfile.mkdtemp(dir=Path(file).parent))
    sfumato.create(folder / "vault", anchor=folder / "anchor")
    vault = sfumato.open(folder / "vault")
    vault.add("visits", file, _CARD)
    return vault


def _declared(vault: OpenVault) -> int:
    built = vault["visits"].group_by("clinic").at_most(groups=script.DECLARED_GROUPS)
    answer = built.count().sum("cost").ask(epsilon=script.EPSILON, fresh=True)
    return len(answer.rows)


def _private(vault: OpenVault) -> int:
    built = vault["visits"].group_by("icd").at_most(groups=script.PRIVATE_GROUPS)
    built = built.count().sum("cost")
    return len(built.ask(epsilon=script.EPSILON, delta=script.DELTA, fresh=True).rows)


def _noise(_vault: object) -> int:
    return len(Noise("laplace", Fraction(script.SCALE)).sample(script.DRAWS, SystemRandomSource()))


if __name__ == "__main__":
    script.answer(
        script.Peer(
            "sfumato",
            _load,
            {"declared": _declared, "private": _private, "noise": _noise},
            {
                "declared": "the whole request: price, durable charge, noise, receipt",
                "private": "the whole request: price, durable charge, noise, receipt",
                "noise": "exact integers, all at once",
            },
        )
    )
