"""A copy of the checkout in which one file at a time is changed and its tests are run."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.mutate.mutants import Mutant
from tools.mutate.record import Verdict
from tools.mutate.targets import Target

ROOT = Path(__file__).parents[2]
LEAST_S = 60.0  # what any test file may take, beside five times what it takes unchanged
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.M)
EARLY = "ignore::pytest.PytestAssertRewriteWarning"  # of plugins that are imported before the fork
OPTIONS = ("-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-W", EARLY)

OUTPUT = "pytest.out"
# says the fork's number, then how it has ended; the fork leads a group of its own. If whoever asks
# is killed, the pipe is closed, and the fork is killed with all of its group.
FORKS = """
import contextlib, json, os, select, signal, sys
import pytest, hypothesis, numpy, scipy.stats, xdist

def end_of(child):
    poll, watched = select.poll(), os.pidfd_open(child)
    poll.register(sys.stdin, 0)  # hang-ups are always reported
    poll.register(watched, select.POLLIN)
    if watched not in dict(poll.poll()):
        with contextlib.suppress(ProcessLookupError):  # it does not lead a group yet
            os.killpg(child, signal.SIGKILL)
        os.kill(child, signal.SIGKILL)
        os._exit(1)
    os.close(watched)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.setsid()
        nothing, output = os.open(os.devnull, os.O_RDONLY), os.open(sys.argv[1], 577, 0o600)
        for place, file in enumerate((nothing, output, output)):
            os.dup2(file, place)
        code = pytest.main(json.loads(line))
        sys.stdout.flush()
        os._exit(code)
    print(child, flush=True)
    print(end_of(child), flush=True)
"""


class Red(Exception):
    """Tests fail on the source as it is: no mutant can be judged by them."""


@dataclass
class Bench:
    """The copy, and how long each test file takes in it."""

    home: Path
    _took_s: dict[str, float] = field(default_factory=dict)
    _written: int = 0
    _started: Runner | None = None

    def judge(self, target: Target, mutant: Mutant) -> tuple[Verdict, str]:
        """Return what the tests say of the mutant, and the first that fails."""
        for test in target.tests:
            limit_s = self._limit_s(test)
            with self._changed(mutant):
                verdict, by = self._run(test, limit_s)
            if verdict != "survived":
                return verdict, by
        return "survived", ""

    def _limit_s(self, test: str) -> float:
        """Return what a test file may take; it is run once on the source as it is."""
        if test not in self._took_s:
            self._time(test)
        return max(LEAST_S, 5 * self._took_s[test])

    def _time(self, test: str) -> None:
        began = time.monotonic()
        verdict, by = self._run(test, 900)
        if verdict != "survived":
            raise Red(f"{by or test} fails on the source as it is")
        self._took_s[test] = time.monotonic() - began

    @contextmanager
    def _changed(self, mutant: Mutant) -> Iterator[None]:
        path = self.home / mutant.path
        source = path.read_bytes()
        try:
            self._write(path, mutant.applied(source))
            yield
        finally:
            self._write(path, source)

    def _write(self, path: Path, source: bytes) -> None:
        """Write the file with a time of its own, or Python would take the last one's bytecode."""
        self._written += 1
        path.write_bytes(source)
        os.utime(path, (10**9 + self._written, 10**9 + self._written))

    def _run(self, test: str, limit_s: float) -> tuple[Verdict, str]:
        shutil.rmtree(self.home / ".hypothesis", ignore_errors=True)
        code = self._runner().run([*OPTIONS, "-m", "not slow", test], limit_s)
        if code is None:
            return "slow", test
        if code == 0:
            return "survived", ""
        found = FAILED.search((self.home / OUTPUT).read_text("utf-8", errors="replace"))
        return "killed", found[1].removeprefix("tests/") if found else f"{test} does not start"

    def _runner(self) -> Runner:
        if self._started is None:
            self._started = Runner(self.home)
        return self._started

    def close(self) -> None:
        """End the process that runs the tests."""
        if self._started is not None:
            self._started.close()


class Runner:
    """Runs tests in forks of a process that has imported what is not ours: most of their time."""

    def __init__(self, home: Path) -> None:
        self._process = subprocess.Popen(
            [home / ".venv" / "bin" / "python", "-c", FORKS, OUTPUT],
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # what is forked has no threads
            text=True,
        )

    def run(self, arguments: Sequence[str], limit_s: float) -> int | None:
        """Return how pytest ends with these arguments; None if it takes too long."""
        asked, told = self._process.stdin, self._process.stdout
        if asked is None or told is None:
            raise OSError("the process of the tests has no pipes")
        asked.write(json.dumps(list(arguments)) + "\n")
        asked.flush()
        child = int(told.readline())
        try:
            is_over, _, _ = select.select([told], [], [], limit_s)
        finally:  # of a run that is stopped, nothing is left either
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        code = int(told.readline())
        return code if is_over else None

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.communicate()


@contextmanager
def bench() -> Iterator[Bench]:
    """Make a copy of what git knows or would add, with an interpreter that imports the copy."""
    with TemporaryDirectory(prefix="sfumato-mutants-") as folder:
        home = Path(folder).resolve()
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.check_output(listed, cwd=ROOT, text=True).split("\0"):
            if name and (ROOT / name).is_file():
                (home / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, home / name)
        link(home)
        made = Bench(home)
        with closing(made):
            yield made


def link(home: Path) -> None:
    """Give the copy an interpreter of its own: an engine's worker has no PYTHONPATH to read."""
    venv.create(home / ".venv", with_pip=False, symlinks=True)
    site = home / ".venv" / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    here = sysconfig.get_paths()["purelib"]
    (site / "sfumato-mutants.pth").write_text(f"{home / 'src'}\n{here}\n")
