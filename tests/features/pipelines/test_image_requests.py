"""Requests for images: researchers ask, operators decide, and only the vault's folder pulls."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.image_request import (
    MAX_REASON,
    MAX_REQUESTS,
    MAX_REQUESTS_DAYS,
    MAX_WAITING,
)
from sfumato.sandbox.environment_store import Environments
from support.container_images import PYTHON, layout, shell_layer
from support.image_registries import registry
from support.sandbox_blocks import needs_bubbles
from support.small_vaults import make_vault, run

HOST = "registry.example.org"


def image(number: int) -> str:
    return f"{HOST}/team/tool@sha256:{number:064x}"


def allow(vault: Path, *registries: str) -> None:
    settings = json.loads((vault / "vault.json").read_text())
    (vault / "vault.json").write_text(json.dumps({**settings, "registries": list(registries)}))


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    made = make_vault(tmp_path)
    allow(made, f"{HOST}/team")
    with sfumato.open(made) as opened:
        yield opened


def as_user(vault: OpenVault, name: str) -> Any:
    return OpenVault(vault.house, name)


def asked(who: Any, number: int, **more: object) -> Any:
    return who.call("request-image", {"image": image(number), **more})


def refused(act: Any) -> Refused:
    with pytest.raises(Refused) as found:
        act()
    return found.value


def code_of(act: Any) -> str:
    return refused(act).code


def test_a_request_waits_and_its_author_sees_the_decision(vault: OpenVault) -> None:
    ria, eve = (as_user(vault, name) for name in ("ria", "eve"))
    made = asked(ria, 1, why="a tool")
    assert (made["state"], made["environment"]) == ("waiting", f"image-{1:064x}")
    assert asked(ria, 1)["request"] == made["request"]  # once
    assert eve.call("image-requests", {})["requests"] == []
    body = {"request": made["request"], "state": "declined", "reason": "too large"}
    assert code_of(lambda: ria.call("decide-image-request", body)) == "not-allowed"
    vault.call("decide-image-request", body)
    (found,) = ria.call("image-requests", {})["requests"]
    assert (found["state"], found["decided_by"], found["reason"]) == (
        "declined", "owner", "too large",
    )  # fmt: skip
    assert asked(ria, 1)["request"] != made["request"]  # after a decline, one may ask again
    everything: Any = vault.call("image-requests", {})["requests"]
    assert len(everything) == 2


def test_an_accepted_request_pulls_nothing(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulled: list[object] = []
    monkeypatch.setattr(Environments, "pull_image", lambda *given: pulled.append(given))
    made = asked(as_user(vault, "ria"), 1)
    body = {"request": made["request"], "state": "accepted"}
    assert vault.call("decide-image-request", body)["state"] == "accepted"
    assert pulled == []


@pytest.mark.parametrize(
    "name",
    [
        "other.example.org/team/tool@sha256:" + 64 * "0",
        f"{HOST}/other/tool@sha256:" + 64 * "0",
        f"{HOST}/team/tool:latest",
        f"{HOST}/team/<img src=x>@sha256:" + 64 * "0",
        "",
    ],
)
def test_only_an_image_by_digest_at_an_allowed_registry_is_asked_for(
    vault: OpenVault, name: str
) -> None:
    ria = as_user(vault, "ria")
    assert code_of(lambda: ria.call("request-image", {"image": name})) == "image-not-pulled"
    assert ria.call("image-requests", {})["requests"] == []


class Days:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.day = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> str:
        """Return the moment that the test has set."""
        return self.day.isoformat()


def test_a_person_has_few_open_requests_and_few_in_a_month(vault: OpenVault) -> None:
    ria, clock = as_user(vault, "ria"), Days()
    vault.house.desk.pipelines.images.__dict__["clock"] = clock
    for number in range(MAX_WAITING):
        asked(ria, number)
    assert "waiting" in refused(lambda: asked(ria, MAX_WAITING)).cause
    asked(as_user(vault, "eve"), 99)  # another person's are counted apart
    clock.day += timedelta(days=MAX_REQUESTS_DAYS - 1)
    for number in range(MAX_REQUESTS):
        for one in ria.call("image-requests", {})["requests"]:
            if one["state"] == "waiting":
                body = {"request": one["request"], "state": "declined"}
                vault.call("decide-image-request", body)
        if number >= MAX_WAITING:
            asked(ria, number)
    assert f"last {MAX_REQUESTS_DAYS} days" in refused(lambda: asked(ria, 1000)).cause
    clock.day += timedelta(days=1)  # the first five are a month old
    for number in range(1000, 1000 + MAX_WAITING - 1):  # beside the one that waits
        asked(ria, number)


@pytest.mark.parametrize("why", ["x" * (MAX_REASON + 1), "a\x1b[0m", 5])
def test_a_reason_is_short_and_plain(vault: OpenVault, why: object) -> None:
    assert code_of(lambda: asked(as_user(vault, "ria"), 1, why=why)) == "bad-request"


@needs_bubbles
@pytest.mark.skipif(
    shutil.which("docker-registry") is None or shutil.which("skopeo") is None,
    reason="docker-registry or skopeo is not installed: `make system` brings them",
)
def test_whoever_opens_the_folder_accepts_and_pulls(tmp_path: Path) -> None:
    vault, place = make_vault(tmp_path), tmp_path / "layout"
    digest = layout(place, [shell_layer()], settings=PYTHON, entry=["/run"])
    index = json.loads((place / "index.json").read_text())
    index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": "it"}
    (place / "index.json").write_text(json.dumps(index))
    command = ("pipeline", "environment")
    with registry(tmp_path / "registry") as served:
        served.push(place, "team/tool:1")
        allow(vault, served.host)
        name = f"{served.host}/team/tool@{digest}"
        made = run(vault, *command, "request", name, "--why", "a tool", "--user", "ria", "--json")
        request = json.loads(made.stdout)["request"]
        no = run(vault, *command, "accept", request, "--user", "ria")
        assert no.returncode != 0
        try:
            done = run(vault, *command, "accept", request)
            assert f"on the machine: --environment image-{digest[7:]}" in done.stdout, done.stderr
            listed = run(vault, *command, "requests", "--user", "ria", "--json")
            (found,) = json.loads(listed.stdout)["requests"]
            assert (found["state"], found["decided_by"]) == ("there", "owner")
        finally:
            run(vault, *command, "remove", f"image-{digest[7:]}")
