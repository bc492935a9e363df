"""What tests look for is what `make system` brings: else a new machine would skip them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BROUGHT_BY = {  # a program, and the package that has it
    "bwrap": "bubblewrap",
    "java": "default-jre-headless",
    "mariadbd": "mariadb-server-core",
    "swift-proxy-server": "swift-proxy",
    **{
        name: name
        for name in (
            "curl",
            "docker-registry",
            "git-annex",
            "mmdebstrap",
            "openssl",
            "podman",
            "runc",
            "skopeo",
            "strace",
            "umoci",
            "zstd",
        )
    },
}
NOT_IN_DEBIAN = {"apptainer"}  # run where it is; nothing is skipped where it is not


def test_make_system_brings_whatever_a_test_looks_for() -> None:
    (listed,) = re.findall(r'^packages="(.*)"$', (ROOT / ".ci/system").read_text(), re.MULTILINE)
    looked_for = {
        name
        for path in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r'which\("([^"]+)"\)', path.read_text())
    }
    assert looked_for > {"bwrap", "podman"}
    assert {"buildah", "mmdebstrap"} <= set(listed.split())  # with which .ci/image builds
    swift = {f"swift-{kind}" for kind in ("account", "container", "object")}
    assert swift <= set(listed.split())  # the other servers of tests/support/object_storage.py
    assert "mariadb-client-core" in listed.split()  # what makes its data folder needs it
    assert looked_for - NOT_IN_DEBIAN <= set(BROUGHT_BY)
    assert {BROUGHT_BY[name] for name in looked_for - NOT_IN_DEBIAN} <= set(listed.split())
