"""The list of what sfumato is made of says what the locks say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools.sbom import LISTS, components, main

LOCKS = Path(__file__).parents[2] / "requirements"


@pytest.mark.parametrize("lock", sorted(LISTS))
def test_every_locked_line_and_every_digest_is_in_the_list(lock: str, tmp_path: Path) -> None:
    main(tmp_path)
    text = (LOCKS / lock).read_text("utf-8")
    shape = json.loads((tmp_path / LISTS[lock]).read_text("utf-8"))
    pinned = [line.split()[0] for line in text.splitlines() if re.match(r"[A-Za-z0-9]", line)]
    assert [f"{one['name']}=={one['version']}" for one in shape["components"]] == pinned
    assert sum(len(one["hashes"]) for one in shape["components"]) == text.count("--hash=sha256:")
    assert all(one["hashes"] for one in shape["components"])
    assert (shape["bomFormat"], shape["specVersion"]) == ("CycloneDX", "1.6")


def test_what_is_only_for_some_machines_says_so() -> None:
    digest = "0" * 64
    lock = f"some==1.2 ; sys_platform == 'win32' \\\n    --hash=sha256:{digest}\n"
    (one,) = components(lock)
    assert one["properties"] == [{"name": "sfumato:where", "value": "sys_platform == 'win32'"}]
    assert one["hashes"] == [{"alg": "SHA-256", "content": digest}]
