"""The commands for environments of programs: an operator pulls an image, a researcher cannot."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import sfumato
from sfumato.dp.refusal import Refused
from support.container_images import PYTHON, layout, python_layer, shell_layer
from support.image_registries import PASSWORD, USER, answering, of_passwords, registry
from support.sandbox_blocks import needs_bubbles
from support.small_vaults import make_vault, run

LABELS = {
    "org.opencontainers.image.title": "a tool",
    "org.opencontainers.image.source": "https://example.org/tool",
    "org.opencontainers.image.licenses": "MIT",
    "odd\x1b[0m": "a\nb",
}
PROGRAM = """#!/bin/sh
echo "$(cat "$1/participants.tsv" | wc -l)" > "$2/answer.txt"
"""


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return make_vault(tmp_path)


def allow(vault: Path, *registries: str) -> None:
    settings = json.loads((vault / "vault.json").read_text())
    (vault / "vault.json").write_text(json.dumps({**settings, "registries": list(registries)}))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a layout of an image, and its digest."""
    place = tmp_path_factory.mktemp("image") / "layout"
    digest = layout(
        place, [shell_layer(), python_layer()], settings=PYTHON, labels=LABELS, entry=["/run"]
    )
    index = json.loads((place / "index.json").read_text())
    index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": "it"}
    (place / "index.json").write_text(json.dumps(index))
    return place, digest


@needs_bubbles
@pytest.mark.skipif(
    shutil.which("docker-registry") is None or shutil.which("skopeo") is None,
    reason="docker-registry or skopeo is not installed: `make system` brings them",
)
def test_an_operator_pulls_an_image_and_tries_it(
    vault: Path, made: tuple[Path, str], tmp_path: Path
) -> None:
    (place, digest), folder = made, tmp_path / "registry"
    login = tmp_path / "login"
    login.write_text(f"{USER}:{PASSWORD}")
    login.chmod(0o600)
    with registry(folder, of_passwords(folder)) as served:
        served.push(place, "team/tool:1", f"--dest-creds={USER}:{PASSWORD}")
        name = f"{served.host}/team/tool@{digest}"
        pull = ("pipeline", "environment", "add", "--pull", name, "--login", str(login))
        refused = run(vault, *pull, "--json")
        assert json.loads(refused.stdout)["refused"]["code"] == "image-not-pulled"
        allow(vault, f"{served.host}/team")
        pulled = run(vault, *pull)
    own = f"image-{digest[7:]}"
    try:
        assert pulled.stdout.startswith(f"Added {own}, ")
        assert PASSWORD not in pulled.stdout + pulled.stderr
        listed = run(vault, "pipeline", "environment", "list").stdout
        for line in (
            f"  pulled from: {served.host}/team/tool", f"  manifest: {digest}",
            '  runs: ["/run"]', '  label org.opencontainers.image.title: "a tool"',
            "  label org.opencontainers.image.source: https://example.org/tool",
            "  label org.opencontainers.image.licenses: MIT",
            '  label "odd\\u001b[0m": "a\\nb"',
        ):  # fmt: skip
            assert line in listed.splitlines()
        shown = json.loads(run(vault, "pipeline", "environment", "list", "--json").stdout)
        (found,) = [one for one in shown["environments"] if one["name"] == own]
        assert found["labels"] == LABELS
        (tmp_path / "program.sh").write_text(PROGRAM)
        (tmp_path / "people.tsv").write_text("participant_id\nsub-1\nsub-2\n")
        tried = run(
            vault, "pipeline", "try", str(tmp_path / "program.sh"), "--environment", own,
            "--data", str(tmp_path / "people.tsv"), "--output", "lines:0:9:1@answer.txt#0",
        )  # fmt: skip
        assert "lines: 3\n" in tried.stdout, tried.stdout + tried.stderr
    finally:
        run(vault, "pipeline", "environment", "remove", own)
    assert own not in run(vault, "pipeline", "environment", "list").stdout


def test_a_researcher_never_makes_the_vault_pull(vault: Path, made: tuple[Path, str]) -> None:
    with answering(lambda *_: (200, {}, b"")) as heard:
        allow(vault, heard.address)
        name = f"{heard.address}/team/tool@{made[1]}"
        pull = ("pipeline", "environment", "add", "--pull", name, "--json")
        refused = run(vault, *pull, "--user", "ria")
        assert json.loads(refused.stdout)["refused"]["code"] == "not-allowed"
        with (
            sfumato.open(vault, user="ria") as opened,
            pytest.raises(Refused, match="not the owner"),
        ):
            _ = opened.environments
        assert heard.requests == []
        with sfumato.open(vault) as opened, pytest.raises(Refused, match="does not match"):
            opened.environments.pull_image(name)
        assert len(heard.requests) == 1


def test_one_kind_of_environment_is_added_at_a_time(vault: Path, tmp_path: Path) -> None:
    add = ("pipeline", "environment", "add")
    name = f"registry.example.org/tool@sha256:{64 * '0'}"
    for wrong in ((), ("--pull", name, "--folder", str(tmp_path)),
                  ("--folder", str(tmp_path), "--login", str(vault / "vault.json"))):  # fmt: skip
        assert run(vault, *add, *wrong).returncode == 2


def test_a_trial_in_an_environment_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "people.tsv").write_text("participant_id\nsub-1\n")
    tried = run(
        tmp_path, "pipeline", "try", "--environment", f"image-{64 * '0'}", "--json",
        "--data", str(tmp_path / "people.tsv"), "--output", "lines:0:9:1@answer.txt#0",
    )  # fmt: skip
    assert json.loads(tried.stdout)["refused"]["code"] == "bad-environment"
