"""Measure how many randomised survey reports a served vault takes in a second over HTTP.

The reports are made beforehand with the survey's own key, so that the bench measures the intake
alone. The vault verifies, reads, counts and syncs each report before it answers.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import load_pem_private_key

import sfumato
from bench.load import line, request
from sfumato.features.surveys.respondent_client import shown

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.served_vault import served
from support.survey_fixtures import design

REPORTS: Final = 30_000
CLIENTS: Final = (64, 256)  # who send at once: what waits together is counted with one commit


def run(reports: int = REPORTS) -> list[dict[str, object]]:
    """Return for so many clients a line for intake, and one for the same reports again."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as folder:
        vault = Path(folder, "vault")
        sfumato.create(vault, anchor=Path(folder, "anchor"))
        bodies = {}
        with sfumato.open(vault) as house:
            for clients in CLIENTS:
                made = house.call("publish-survey", {"survey": design(people=reports)})
                survey = str(made["survey"])
                bodies[clients, survey] = list(_bodies(vault, survey, reports // len(CLIENTS)))
        with served(vault) as service:
            return [
                line(f"{name}, {clients} clients", service, _next(survey, made), clients, None)
                for (clients, survey), made in bodies.items()
                for name in ("reports", "the same again")
            ]


def _next(survey: str, bodies: list[bytes]):  # type: ignore[no-untyped-def]  # as load has it
    path, left = f"/v1/surveys/{survey}/reports", iter(bodies)
    return lambda _client: request("POST", path, "", next(left))


def _bodies(vault: Path, survey: str, reports: int) -> Iterator[bytes]:
    """Yield reports under tokens that the survey's key has signed."""
    pem = (vault / "keys" / "ballots" / f"{survey}.pem").read_bytes()
    key = load_pem_private_key(pem, None)
    assert isinstance(key, rsa.RSAPrivateKey)
    for number in range(reports):
        token = os.urandom(32)
        signature = key.sign(token, padding.PSS(padding.MGF1(SHA384()), 48), SHA384())
        said = f"0.0.{number % 3} 1.0.{number % 4}"
        body = {"token": shown(token), "signature": shown(signature), "said": said}
        yield json.dumps(body).encode()


if __name__ == "__main__":
    from bench.__main__ import main

    main(["surveys"])
