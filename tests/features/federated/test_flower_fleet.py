"""A real SuperLink and four real SuperNodes on loopback, offline; one is killed while it trains.

The noisy round is first, in which one site's app fails; then two without noise, of the second of
which one SuperNode sees only the beginning.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench.peers.environments import python_of
from sfumato.dp.secure_aggregation.message_encoding import decode_fields
from sfumato.features.federated.agreement import read_agreement
from sfumato.features.federated.flower import schedule, spent_at
from sfumato.features.federated.flower.fleet_schedule import Plan
from support.flower_fleets import CONVENER, NAMES, made_sites

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
APP = Path(__file__).parent / "fleet_app"
PATIENCE = Path(__file__).parent / "patience"
SIZE = 8193
DEADLINE_S = 1800.0


def free_port() -> int:
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


class Processes:
    """Flower's processes, each with a group of its own, so that all it starts ends with it."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder, self.bin = folder, python.parent
        self.link = free_port()
        self.started: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "home").mkdir()
        (folder / "home" / "config.toml").write_text(
            '[superlink]\ndefault = "mine"\n\n[superlink.mine]\n'
            f'address = "127.0.0.1:{self.link}"\ninsecure = true\n'
        )
        self.env = {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "FLWR_HOME": str(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(PATIENCE))),
        }

    def start(self, name: str, program: str, *said: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.started[name] = subprocess.Popen(
                [str(self.bin / program), *said],
                env=self.env, cwd=self.folder, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def start_fleet(self) -> None:
        here = ("--insecure", "--host", "127.0.0.1")
        off = "--disable-runtime-dependency-installation"
        self.start("link", "flower-superlink", *here, off, "--port", str(self.link))
        self.until(self.is_linked, "link")
        for name in NAMES:
            rows = self.folder / name
            told = f'rows="{rows}" sfumato-site="{rows / "plain"}" noisy-site="{rows / "noisy"}"'
            to = ("--superlink", f"127.0.0.1:{self.link}", "--node-config", told)
            self.start(name, "flower-supernode", *here, *to, "--port", str(free_port()))
        told = f'fleet="{self.folder}" wait={DEADLINE_S / 2}'
        self.start("run", "flwr", "run", str(APP), "mine", "--stream", "--run-config", told)

    def is_linked(self) -> bool:
        with closing(socket.socket()) as one:
            return one.connect_ex(("127.0.0.1", self.link)) == 0

    def until(self, is_so: Any, needed: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while not is_so():
            is_over = self.started[needed].poll() is not None and not is_so()
            if is_over or time.monotonic() > end:
                pytest.fail("".join(p.read_text("utf-8", "replace")[-3000:]
                                    for p in sorted(self.folder.glob("*.log"))))  # fmt: skip
            time.sleep(0.2)

    def kill(self, name: str) -> None:
        """Kill a node and whatever it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.started[name].pid, signal.SIGKILL)
        self.started[name].wait()

    def kill_all(self) -> None:
        """Kill all of them, those with groups of their own too: they have our home."""
        for name in self.started:
            self.kill(name)
        mark = f"FLWR_HOME={self.folder / 'home'}".encode()
        for told in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in told.read_bytes().split(b"\0"):
                    os.kill(int(told.parent.name), signal.SIGKILL)


def update_of(name: str) -> Any:
    """Multiples of a step, so that nothing is rounded."""
    return (np.arange(SIZE) % 5 - 2 + NAMES.index(name)) / 16.0


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Play the rounds; return the folder in which everybody has written down what came of them."""
    python = python_of("flower")
    if python is None:
        pytest.skip("Flower is not to be had here: see .bench/peers/flower.log")
    folder = tmp_path_factory.mktemp("fleet")
    for kind, lets_average in (("plain", True), ("noisy", False)):
        made_sites_of(folder, kind, lets_average)
    for name in NAMES:
        np.save(folder / name / "update.npy", update_of(name))
    (folder / "west" / "fail").touch()
    (folder / "size.json").write_text(str(SIZE))
    (folder / "convener.key").write_bytes(CONVENER.private_bytes_raw())
    processes = Processes(folder, python)
    try:
        processes.start_fleet()
        processes.until((folder / "plain-1.done").exists, "run")
        (folder / "south" / "hold").touch()
        processes.until((folder / "south" / "held").exists, "run")
        processes.kill("south")
        processes.until((folder / "plain-2.done").exists, "run")
    finally:
        processes.kill_all()
    return folder


def made_sites_of(folder: Path, kind: str, lets_average: bool) -> None:
    """Make the sites under `NAME/KIND`, and `KIND.json`."""
    made = folder / "made"
    made_sites(made, lets_average=lets_average, epsilon=10, delta="1e-4")
    for name in NAMES:
        (folder / name).mkdir(exist_ok=True)
        (made / name).rename(folder / name / kind)
    (made / "agreement.json").rename(folder / f"{kind}.json")


def model(played: Path, which: str) -> Any:
    found = np.load(played / f"{which}.npz")
    return np.concatenate([found["deep"].ravel(), found["bias"].ravel()])


def said(played: Path, which: str) -> dict[str, Any]:
    words: dict[str, Any] = json.loads((played / f"{which}.said.json").read_text())
    return words


def heard(played: Path, which: str) -> list[dict[str, Any]]:
    words: list[dict[str, Any]] = json.loads((played / f"{which}.heard.json").read_text())
    return words


def plan_of(played: Path, kind: str) -> Plan:
    price = ("8", "1e-5") if kind == "noisy" else (None, None)
    wanted = schedule(kind, size=SIZE, clip=64, rounds=2, epsilon=price[0], delta=price[1])
    return Plan(read_agreement(json.loads((played / f"{kind}.json").read_text())), wanted)


def test_the_average_is_the_pooled_one_when_there_is_no_noise(played: Path) -> None:
    assert np.array_equal(model(played, "plain-1"), sum(map(update_of, NAMES)) / 4)
    assert said(played, "plain-1")["card"]["guarantee"] == "secure-average (not DP)"


def test_a_node_killed_while_it_trains_leaves_no_sum_without_noise(played: Path) -> None:
    """The difference to the round before, of the same model, would be that node's update."""
    assert said(played, "plain-2")["rounds"] == [
        {"number": 2, "sites": [], "refused": "sum-too-few"}
    ]


def test_a_private_average_has_the_noise_of_all_sites_shares(played: Path) -> None:
    """The app failed at one site, which all the same is in the sum, with noise alone."""
    plan = plan_of(played, "noisy")
    assert plan.noise is not None
    assert said(played, "noisy-1")["rounds"][0]["sites"] == list(NAMES)
    left = sum(update_of(name) for name in ("east", "north", "south")) / 4
    noise = (model(played, "noisy-1") - left) * plan.grid.steps / 64
    wanted = float(plan.noise.share) * 4 / 16
    low, high = stats.chi2.ppf([5e-6, 1 - 5e-6], SIZE)
    # and the rounding of three sites, of a quarter of a step squared at most each
    assert low * wanted < float(noise @ noise) < high * (wanted + 3 / 64)
    assert said(played, "noisy-1")["card"]["guarantee"] == "central-dp"


def test_every_site_has_paid_for_the_schedule_and_nothing_for_the_average(played: Path) -> None:
    paid = {spent_at(played / name / "noisy")["epsilon"] for name in NAMES}
    assert paid == {"8"}
    assert {spent_at(played / name / "plain")["epsilon"] for name in NAMES} == {"0"}


def masked_words(played: Path, which: str) -> list[Any]:
    """Return the masked words of every site that sent them, as the server had them."""
    plan = plan_of(played, which.partition("-")[0])
    found = []
    for records in heard(played, which):
        message = bytes.fromhex(records.get("sfumato", {}).get("message", ""))
        if message[:30].find(b"masked") > 0:
            width = 4 if plan.bits <= 32 else 8
            found.append(np.frombuffer(decode_fields(message, "masked", 2)[1], f"<u{width}"))
    return found


def uniform_p(words: Any, bits: int) -> float:
    """Return the lesser chance of so uneven high and low bytes."""
    parts = (words >> np.uint8(bits - 8)) & 255, words & 255
    return min(float(stats.chisquare(np.bincount(p.astype(np.int64), minlength=256)).pvalue)
               for p in parts)  # fmt: skip


def test_no_message_to_the_server_holds_an_update_that_is_not_masked(played: Path) -> None:
    for which, senders in (("noisy-1", 4), ("plain-1", 4), ("plain-2", 3)):
        bits = plan_of(played, which.partition("-")[0]).bits
        words = masked_words(played, which)
        assert len(words) == senders
        assert all(one.size == SIZE and uniform_p(one, bits) > 1e-7 for one in words)


def test_masks_switched_off_would_be_seen(played: Path) -> None:
    plan = plan_of(played, "plain")
    bare = np.rint(update_of("east") * plan.grid.steps / 64).astype(np.int64)
    assert uniform_p((bare & ((1 << plan.bits) - 1)).astype(np.uint64), plan.bits) < 1e-100


def test_nothing_but_bytes_of_the_secure_sum_reaches_the_server(played: Path) -> None:
    """No metrics, no counts of rows, and no text of an app that failed."""
    for which in ("noisy-1", "plain-1", "plain-2"):
        for records in heard(played, which):
            if "error" in records:
                assert records["error"].startswith("Error: Node Unavailable")
                continue
            assert {name: set(record) for name, record in records.items()} == {
                "sfumato": {"message"}
            }
