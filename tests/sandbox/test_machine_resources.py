"""What blocks may have together: less than there is, wherever it is written down."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sfumato.dp.refusal import Refused
from sfumato.sandbox.availability_report import why_not
from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.block_timing import turn_s
from sfumato.sandbox.container_runtimes import Runtime
from sfumato.sandbox.machine_resources import is_too_old, memory_mb, one_by_one
from sfumato.sandbox.ports import SandboxLimits, SandboxStopped
from sfumato.sandbox.sandbox_pool import SandboxPool
from sfumato.system.randomness import SystemRandomSource
from support.sandbox_blocks import ROWS, bubble, needs_bubbles, ran_in


def written(place: Path, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def test_a_machine_has_no_more_memory_than_its_control_groups_let_it(tmp_path: Path) -> None:
    groups, machine = tmp_path / "groups", memory_mb(tmp_path, tmp_path / "none")
    assert machine == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    second = written(tmp_path / "second", "0::/a/b\n")
    written(groups / "a" / "b" / "memory.max", "max\n")
    assert memory_mb(groups, second) == machine
    written(groups / "a" / "memory.max", f"{64 << 20}\n")
    assert memory_mb(groups, second) == 64
    first = written(tmp_path / "first", "5:cpu:/c\n9:memory,pids:/c\n0::/\n")
    written(groups / "memory" / "memory.limit_in_bytes", f"{2**63 - 4096}\n")
    written(groups / "memory" / "c" / "memory.limit_in_bytes", f"{32 << 20}\n")
    assert memory_mb(groups, first) == 32
    written(groups / "memory.max", f"{16 << 20}\n")
    assert memory_mb(groups, first) == 16


def test_blocks_run_one_by_one_where_the_kernel_counts_them_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict, loose = written(tmp_path / "strict", "2\n"), written(tmp_path / "loose", "0\n")
    monkeypatch.setattr(os, "geteuid", lambda: 0)  # then each bubble has a uid of its own
    assert one_by_one("6.1.0-13-amd64", strict)
    assert not one_by_one("5.10.0-8-amd64", loose)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert one_by_one("5.10.0-8-amd64", loose)
    assert not one_by_one("5.14.0", loose)
    assert not one_by_one("6.18.44-x", loose)


OLD = "5.4.0-216-generic"


def test_no_program_is_run_on_a_kernel_that_numbers_all_files_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [is_too_old(one) for one in (OLD, "5.8.18", "4.18.0-553.el8")] == [True] * 3
    assert [is_too_old(one) for one in ("5.9.0", "5.10.0-8-amd64", "6.18.44-x")] == [False] * 3
    here, sandbox = os.uname(), SandboxPool(environment, SystemRandomSource())
    assert sandbox.lanes(SandboxLimits(memory_mb=256)) > 0
    assert "5.9" not in why_not(Runtime())
    old = os.uname_result((here.sysname, here.nodename, OLD, here.version, here.machine))
    monkeypatch.setattr(os, "uname", lambda: old)
    with pytest.raises(SandboxStopped):
        sandbox.check(SandboxLimits(memory_mb=256))
    assert "use Linux 5.9 or later" in why_not(Runtime())


NUMBERS = """
import os
def f(rows):
    for place in range(3000 if rows['height'].max() > 175 else 0):
        open(f'/work/tmp/{place}', 'w').close()
    return {'m': os.stat('/work/out').st_ino, 'n': os.stat('/work/tmp').st_ino}
"""


@needs_bubbles
def test_this_kernel_numbers_the_files_of_each_block_apart() -> None:
    few, many = ROWS.replace("180", "170"), ROWS
    made = bubble()
    said = [ran_in(made, NUMBERS, "f", rows).output for rows in (few, many, few)]
    made.kill()
    assert said[0] != b""
    assert said[0] == said[1] == said[2]


def test_a_turn_has_room_for_taking_back_what_a_block_may_have() -> None:
    small, large = SandboxLimits(cpu_s=1.0, memory_mb=256), SandboxLimits(memory_mb=16_384)
    assert turn_s(small) - small.wall_s >= 0.3
    assert turn_s(large) - large.wall_s >= 1.8


@pytest.mark.parametrize("where", ["made/vault", "made"])
def test_a_vault_among_the_files_that_programs_are_given_is_refused(
    tmp_path: Path, where: str
) -> None:
    with pytest.raises(Refused) as refused:
        environment(tmp_path / "made", vault=tmp_path / where)
    assert refused.value.code == "sandbox-missing"


def test_a_vault_in_the_interpreters_own_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused):
        environment(tmp_path, vault=Path(sys.base_prefix, "lib", "python3.11", "mine"))
