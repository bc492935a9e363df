"""The mutation bench: what it changes, how it judges, and that its record has no loose end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tools.mutate import bench
from tools.mutate.__main__ import ENOUGH, every, sample
from tools.mutate.mutants import Mutant, mutants
from tools.mutate.record import Line, add_line, read_explained, read_record, score_of
from tools.mutate.targets import AREAS, TARGETS, Target

ROOT = Path(__file__).parents[2]
SOURCE = '''\
"""Nothing of a text is changed: 1 < 2."""

LEAST: int = 3


def is_much(number: int, *, least: int = LEAST) -> bool:
    """Say whether 1 < 2."""
    if number < 0:
        raise ValueError(f"below {0}")
    return number >= least and not number % 2
'''
TEST = """\
import sys

sys.path.insert(0, "src")
import much


def test_four_is_much_and_two_is_not() -> None:
    assert much.is_much(4)
    assert not much.is_much(2)
    assert not much.is_much(5)
"""


def changes(source: str) -> list[tuple[str, str, str]]:
    found = mutants("much.py", source.encode())
    return [(mutant.operator, mutant.before.strip(), mutant.after.strip()) for mutant in found]


def test_constants_comparisons_signs_and_branches_are_changed_one_at_a_time() -> None:
    assert changes(SOURCE) == [
        ("constant", "3", "(4)"),
        ("branch false", "number < 0", "False"),
        ("branch true", "number < 0", "True"),
        ("comparison", "<", "<="),
        ("constant", "0", "(1)"),
        ("comparison", ">=", ">"),
        ("and-or", "and", "or"),
        ("sign", "not number % 2", "number % 2"),
        ("arithmetic", "%", "//"),
        ("constant", "2", "(3)"),
    ]


def test_a_mutant_keeps_its_name_while_its_function_does() -> None:
    def keys(text: str) -> set[str]:
        return {m.key for m in mutants("much.py", text.encode()) if m.function == "is_much"}

    assert keys(SOURCE) == keys("# a line more\n" + SOURCE)
    assert keys(SOURCE) == keys(SOURCE.replace("Say whether", "Return whether"))
    assert not keys(SOURCE) & keys(SOURCE.replace("{0}", "{1}"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bench.Bench]:
    home = tmp_path_factory.mktemp("bench")
    for name, text in (("src/much.py", SOURCE), ("tests/test_much.py", TEST)):
        (home / name).parent.mkdir()
        (home / name).write_text(text)
    bench.link(home)
    with closing(bench.Bench(home)) as found:
        yield found


def judged(made: bench.Bench, operator: str, before: str) -> tuple[str, str]:
    target = Target("noise", "src/much.py", ("tests/test_much.py",))
    found = mutants(target.path, SOURCE.encode())
    (mutant,) = [m for m in found if (m.operator, m.before.strip()) == (operator, before)]
    return made.judge(target, mutant)


def test_what_a_test_notices_is_killed_by_name_and_what_none_does_survives(
    made: bench.Bench,
) -> None:
    by = "test_much.py::test_four_is_much_and_two_is_not"
    assert judged(made, "and-or", "and") == ("killed", by)
    assert judged(made, "branch false", "number < 0") == ("survived", "")
    assert (made.home / "src" / "much.py").read_text() == SOURCE


def test_tests_that_fail_anyway_judge_nothing(made: bench.Bench) -> None:
    red = made.home / "tests" / "test_red.py"
    red.write_text("def test_no() -> None:\n    assert False\n")
    (mutant, *_) = mutants("src/much.py", SOURCE.encode())
    with pytest.raises(bench.Red):
        made.judge(Target("noise", "src/much.py", ("tests/test_red.py",)), mutant)


def test_what_takes_too_long_is_stopped_and_the_next_is_run(made: bench.Bench) -> None:
    (made.home / "tests" / "test_slow.py").write_text(
        "def test_it() -> None:\n    while True: ...\n"
    )
    with closing(bench.Runner(made.home)) as runner:
        assert runner.run(["-q", "tests/test_slow.py"], 3.0) is None
        assert runner.run(["-q", "tests/test_much.py"], 60.0) == 0


def test_whoever_is_killed_leaves_no_process_that_runs_tests(made: bench.Bench) -> None:
    told = made.home / "processes"
    os.mkfifo(told)
    (made.home / "tests" / "test_endless.py").write_text(
        "import os\n\n\ndef test_it() -> None:\n"
        f"    with open({str(told)!r}, 'w') as file:\n"
        "        file.write(f'{os.getppid()} {os.getpid()}')\n"
        "    while True: ...\n"
    )
    asks = (
        "import sys; from pathlib import Path; from tools.mutate.bench import Runner\n"
        "Runner(Path(sys.argv[1])).run(['-q', 'tests/test_endless.py'], 900.0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", asks, str(made.home)], cwd=ROOT) as asking:
        left = [os.pidfd_open(int(one)) for one in told.read_text().split()]
        asking.kill()
    try:
        ended = [select.select([one], [], [], 60.0)[0] == [one] for one in left]
        assert ended == [True, True]
    finally:
        for one in left:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(one, signal.SIGKILL)
            os.close(one)


def test_every_file_and_every_test_that_is_named_is_there() -> None:
    assert [t.path for t in TARGETS if not (ROOT / t.path).is_file()] == []
    assert [name for t in TARGETS for name in t.tests if not (ROOT / name).is_file()] == []


def test_a_sample_is_of_every_area_and_begins_a_larger_one() -> None:
    pairs = every()
    few, more = (sample(pairs, 1, size, AREAS) for size in (20, 60))
    assert more[:20] == few
    assert {area: sum(t.area == area for t, _ in few) for area in AREAS} == dict.fromkeys(AREAS, 4)
    assert few != sample(pairs, 2, 20, AREAS)


def test_a_record_is_read_back_and_scored(tmp_path: Path) -> None:
    one, other, *_ = mutants("much.py", SOURCE.encode())
    for mutant, verdict in ((one, "killed"), (other, "killed"), (other, "survived")):
        add_line(line_of(mutant, verdict), tmp_path / "record")
    record = read_record(tmp_path / "record")
    score = score_of([one, other], record, {})
    assert (score.killed, score.share, len(score.unexplained)) == (1, 0.5, 1)
    assert score_of([one, other], record, {other.key: "the same"}).share == 1


def line_of(mutant: Mutant, verdict: str) -> Line:
    return Line(mutant.key, "noise", verdict, "", "2026-11-26", "")  # type: ignore[arg-type]


def test_of_the_mutants_that_were_run_enough_are_noticed_and_every_other_is_explained() -> None:
    """Who fails here needs a test that notices the mutant, or a line in explained.toml."""
    score = score_of((mutant for _, mutant in every()), read_record(), read_explained())
    assert score.unexplained == ()
    assert score.share >= ENOUGH
