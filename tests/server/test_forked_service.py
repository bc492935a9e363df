"""A service that the tests have forked is what `sfumato serve` starts, seen from outside."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import warm_workers
from support.process_tree import is_there, waited
from support.served_vault import Service, served
from support.small_vaults import make_vault

# SigCgt: a fork catches what whoever forked does; the rest of its status is compared
SAME = ("Umask", "Groups", "NoNewPrivs", "Seccomp", "SigIgn", "SigBlk", "CoreDumping")


@pytest.fixture
def ways() -> Iterator[tuple[object, ...]]:
    yield warm_workers.cold, warm_workers.warm
    warm_workers.warm()


def seen(process: Path) -> dict[str, object]:
    """Return what can be seen of it from outside, but for names and numbers of its own."""
    status = dict(re.findall(r"(\w+):[ \t]*(.*)\n", (process / "status").read_text()))
    stat = (process / "stat").read_text().rpartition(")")[2].split()
    files = {os.readlink(one) for one in (process / "fd").iterdir()}
    return {
        **{name: status[name] for name in SAME},
        "files": {re.sub(r"[\d/].*", "", one) for one in files},
        "pipes": [os.readlink(process / "fd" / one)[:5] for one in "01"],
        "folder": os.readlink(process / "cwd"),
        "limits": (process / "limits").read_text(),
        "leads": stat[2] == stat[3] == process.name,  # its group, and its session
        "is": (process / "cmdline").read_bytes().split(b"\0")[-2],
    }


def kept(service: Service) -> list[Path]:
    """Return the door and the edge."""
    pid = service.process.pid
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [Path(f"/proc/{one}") for one in below]


def test_a_forked_service_is_seen_as_a_started_one_is(
    tmp_path: Path, ways: tuple[object, ...]
) -> None:
    if os.geteuid() != 0:  # they are not dumpable: nobody else may look
        return
    found = []
    for place, way in enumerate(ways):
        assert callable(way)
        way()
        (tmp_path / f"{place}").mkdir()
        with served(make_vault(tmp_path / f"{place}")) as service:
            assert service.call("GET", "/v1/me", token=service.owner())[0] == 200
            found.append([seen(one) for one in kept(service)])
    assert [one["is"] for one in found[0]] == [b"door", b"edge"]
    assert found[1] == found[0]


def test_however_it_began_it_ends_when_it_is_told(tmp_path: Path, ways: tuple[object, ...]) -> None:
    for place, way in enumerate(ways):
        assert callable(way)
        way()
        (tmp_path / f"{place}").mkdir()
        with served(make_vault(tmp_path / f"{place}")) as service:
            below = [int(one.name) for one in kept(service)]
        assert service.process.poll() == 0
        assert waited(lambda below=below: not any(is_there(one) for one in below))
