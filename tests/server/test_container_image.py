"""The Containerfile of docs/deploy: it is built, and what it starts is well."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
CANNOT: Final = 3  # what .ci/image says where there is nothing to build with


def _versions(lock: str) -> set[str]:
    return set(re.findall(r"^\S+==\S+", (ROOT / "requirements" / lock).read_text(), re.MULTILINE))


def test_what_the_image_installs_is_what_the_tests_ran_with() -> None:
    served = _versions("serve.lock")
    assert {name.partition("==")[0] for name in served} >= {"starlette", "uvicorn", "apsw"}
    assert served <= _versions("dev.lock")


@pytest.mark.slow
def test_the_image_is_built_and_serves_as_a_user_of_its_own(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("images are built as root here")
    kept = {**os.environ, "SFUMATO_IMAGE_DIR": str(tmp_path)}
    made = subprocess.run(
        ["sh", ROOT / ".ci" / "image", "debian"],
        env=kept, capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    if made.returncode == CANNOT:
        pytest.skip(made.stderr.strip().splitlines()[-1])
    assert made.returncode == 0, made.stderr
    assert made.stdout.strip().endswith("its user sfumato serves a vault, and /healthz says ok")
