"""Compare the time of private training with plain training, and measure the memory of idle sites.

`beside` is the time to compare with, measured in the same run: plain PyTorch, or the same work
without privacy. `CPU` is how many cores worked for the line on average. On a busy machine, compare
`ratio of CPU`. Only the lines about workers and DP-SGD need PyTorch: sites train without it. `MB`
is memory, and `site_s` is the time of the slowest site.
"""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.federated import cohort
from bench.local_sites import federated, parquet
from bench.samples import lines as samples
from sfumato.app import vault as app
from sfumato.app.federation import FederatedVault
from sfumato.app.site_demo import LocalSite, served
from sfumato.dp.learning.integer_network import Network
from sfumato.dp.mechanisms import gaussian, skellam
from sfumato.system.randomness import BulkRandomSource

SITES: Final = 10
ROWS: Final = 2000  # of each site
WIDTHS: Final = (784, 64, 10)
ROUNDS: Final = 6
PATIENTS: Final = 60_000
BATCH: Final = 256
EPSILON, DELTA = 3.0, 1e-5
STEPS: Final = 24
DATA_SET: Final = "pictures"
_MB: Final = 1024  # kB


def run() -> list[dict[str, object]]:
    """Return a line for each figure."""
    return [
        *_with_torch(),
        *_sites(),
        *samples(),
        cohort("secure sum, 10 sites, a million parameters", SITES, 10**6, gone=0, target_s=3.0),
    ]


def _with_torch() -> list[dict[str, object]]:
    """Return what DP-SGD and a worker cost beside plain PyTorch; nothing without it."""
    try:
        import torch
    except ImportError:
        return []
    torch.manual_seed(0)
    torch.set_num_threads(1)  # or other work on the machine decides the ratio
    return [*_dp_sgd(torch), _worker(torch)]


def _dp_sgd(torch: Any) -> list[dict[str, object]]:  # Any: the module, which mypy does not look in
    """Return lines of some steps of DP-SGD: each beside as many plain ones."""
    from sfumato.features.federated.training.clipped_gradients import clipped_parts

    rows, classes = torch.rand(PATIENTS, 784), torch.randint(0, 10, (PATIENTS,))
    multiplier, rounds = multiplier_for(PATIENTS, BATCH, epochs=10)
    net = _net(torch)
    numbers = list(net.parameters())
    size = sum(one.numel() for one in numbers)
    variance = Fraction(round((multiplier * 2**20) ** 2))  # of a clip of 1 in steps of 2**-20
    dice = BulkRandomSource()

    def step(batch: Any, way: str) -> None:
        said, wanted = rows[batch], classes[batch]
        if way == "plain":
            parts = torch.autograd.grad(
                torch.nn.functional.cross_entropy(net(said), wanted), numbers
            )
        else:
            parts = clipped_parts(net, said, wanted, "cross_entropy", 1.0)
        if way == "noise":
            drawn = gaussian.sample(variance, size, dice).astype(np.float32)
            noise = torch.from_numpy(drawn).split([p.numel() for p in numbers])
            for part, of_it in zip(parts, noise, strict=True):
                part.add_(of_it.reshape(part.shape), alpha=2.0**-20)
        scale = 0.1 if way == "plain" else 0.1 / BATCH
        with torch.no_grad():
            for number, part in zip(numbers, parts, strict=True):
                number.sub_(scale * part)

    def walked(way: str) -> Callable[[], None]:
        def walk() -> None:
            for _ in range(STEPS):
                if way == "plain":
                    step(torch.randint(0, PATIENTS, (BATCH,)), way)
                else:
                    step(torch.nonzero(torch.rand(PATIENTS) < BATCH / PATIENTS)[:, 0], way)

        return walk

    says = f"{'-'.join(map(str, (784, 256, 128, 10)))}, batch {BATCH} of {PATIENTS:,}"
    noisy = f"DP-SGD, {says}: clipped, and noise {multiplier:.2f} for epsilon 3 in {rounds} steps"
    return [
        _ratio(f"DP-SGD, {says}: clipped", walked("clip"), walked("plain"), 2.0),
        _ratio(noisy, walked("noise"), walked("plain"), 2.0),
    ]


def multiplier_for(people: int, batch: int, *, epochs: int) -> tuple[float, int]:
    """Return the least noise, in clips, of so many epochs at the price, and how many steps that is.

    By an accountant that is not ours: what this measures is time, and no site charges for it.
    """
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    steps = epochs * people // batch

    def cost(multiplier: float) -> float:
        one = PoissonSampledDpEvent(batch / people, GaussianDpEvent(multiplier))
        accountant = PLDAccountant(value_discretization_interval=1e-3)
        return float(accountant.compose(SelfComposedDpEvent(one, steps)).get_epsilon(DELTA))

    low, high = 0.3, 20.0
    while high / low > 1.02:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if cost(middle) <= EPSILON else (middle, high)
    return high, steps


def _net(torch: Any) -> Any:  # Any: as above
    layers: list[Any] = []
    for ins, outs in pairwise((784, 256, 128, 10)):
        layers += [torch.nn.Linear(ins, outs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def _worker(torch: Any) -> dict[str, object]:  # Any: as above
    """Return what a loop costs whose tensors and model are at a worker in this process."""
    from sfumato.features.federated import VirtualWorker, nn, tensor

    def loop(model: Any, data: Any, target: Any) -> None:
        steps = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(10):
            steps.zero_grad()
            torch.nn.functional.mse_loss(model(data), target).backward()
            steps.step()

    bob = VirtualWorker(id="bob")
    here, there = torch.nn.Linear(784, 64), nn.Linear(784, 64).send(bob)
    data, target = torch.rand(2000, 784), torch.rand(2000, 64)
    sent = [tensor(part.numpy()).send(bob) for part in (data, target)]
    return _ratio(
        "ten steps at a worker in this process",
        lambda: loop(there, *sent),
        lambda: loop(here, data, target),
        1.5,
    )


def _ratio(
    name: str, ours: Callable[[], object], theirs: Callable[[], object], target: float
) -> dict[str, object]:
    """Return the better of five turns of each, in turn."""
    turns = [(_timed(ours), _timed(theirs)) for _ in range(5)]
    (mine, cpu), (other, _) = (min(column) for column in zip(*turns, strict=True))
    least = min(ours[1] for ours, _ in turns) / min(theirs[1] for _, theirs in turns)
    return {
        "figure": name, "seconds": mine, "beside": other, "ratio": mine / other,
        "ratio of CPU": least, "CPU": cpu / mine, "target": target,
    }  # fmt: skip


def _timed(act: Callable[[], object]) -> tuple[float, float]:
    gc.collect()
    start, cpu = time.perf_counter(), time.process_time()
    act()
    return time.perf_counter() - start, time.process_time() - cpu


def _sites(count: int = SITES) -> list[dict[str, object]]:
    """Return lines about real sites: how heavy they are, and how long a round takes."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as name:
        root = Path(name)
        with ExitStack() as held:
            begun = time.perf_counter()
            sites = [_site(held, root / f"site{place}", place) for place in range(count)]
            started = time.perf_counter() - begun
            fed = federated(held, root, sites, [DATA_SET])
            idle = _pss_mb(sites)
            first, times, cpu = _trained(fed, sites)
            after = _pss_mb(sites)
    network = "-".join(map(str, WIDTHS))
    what = f"{count} sites of {ROWS:,} rows, {network}, real processes"
    return [
        {"figure": f"{count} sites made and started", "seconds": started},
        {"figure": f"{what}: a round, with its secure sum", "seconds": statistics.median(times),
         "CPU": cpu, "target": 0.6},
        {"figure": "the same: the first round, with its price and charge", "seconds": first},
        {"figure": "the same, of which one site's gradients, by itself", "seconds": _gradients_s()},
        {"figure": "the same, of which one site's noise, by itself", "seconds": _noise_s()},
        {"figure": f"{count} sites at rest, MB (sum of PSS; nobody imports PyTorch)", "MB": idle,
         "target": 1500},
        {"figure": "the same after a lesson, MB", "MB": after},
    ]  # fmt: skip


def _site(held: ExitStack, folder: Path, place: int) -> LocalSite:
    """Make a vault of made-up pictures, and serve it in processes of its own."""
    folder.mkdir()
    names = [f"p{number}" for number in range(WIDTHS[0])]
    drawn = np.random.default_rng(place)
    digits = drawn.integers(0, WIDTHS[-1], ROWS)
    inks = (digits[:, None] + drawn.integers(0, 8, (ROWS, WIDTHS[0]))).clip(0, 16)
    lines = [[*names, "digit"], *np.column_stack([inks, digits]).tolist()]
    rows = parquet(folder / "rows.parquet", lines)
    ink = {"type": "integer", "lower": 0, "upper": 16}
    card = {
        "unit": "row",
        "people": f"of-site{place}",
        "budget": {"epsilon": 1000, "delta": Decimal("1e-3")},
        "limits": {"rows": 10 * ROWS},
        "ask": {"who": ["researchers"]},
        "columns": {**dict.fromkeys(names, ink), "digit": {**ink, "upper": WIDTHS[-1] - 1}},
    }
    app.create(folder / "vault", anchor=folder / "anchor")
    with app.open(folder / "vault") as vault:
        vault.add(DATA_SET, rows, card)
    return held.enter_context(served(folder.name, folder / "vault"))


def _trained(fed: FederatedVault, sites: list[LocalSite]) -> tuple[float, list[float], float]:
    """Return the seconds of a lesson's first round, those of the others, and what cores worked."""
    begun, times, used = time.perf_counter(), [], []

    def heard(_: object) -> None:
        nonlocal begun
        times.append(time.perf_counter() - begun)
        if len(times) in {1, ROUNDS}:  # to look at every process takes as long as some of a round
            used.append(_cpu_s(sites))
        begun = time.perf_counter()

    fed.train(
        DATA_SET, features=[f"p{number}" for number in range(WIDTHS[0])], target="digit",
        hidden=WIDTHS[1:-1], rounds=ROUNDS, people=len(sites) * ROWS, clip=1, rate=1.0,
        epsilon=40, delta=1e-5, heard=heard,
    )  # fmt: skip
    return times[0], times[1:], (used[1] - used[0]) / sum(times[1:])


def _gradients_s() -> float:
    """Return what one site's rows take, once they are read: in this process, on one core or two."""
    network, drawn = Network(WIDTHS, "relu", "classes"), np.random.default_rng(1)
    weights = network.weights(drawn.normal(size=network.size) * 0.1)
    rows, target = drawn.random((ROWS, WIDTHS[0])), drawn.integers(0, 10, ROWS).astype(np.float64)
    return min(_timed(lambda: network.clipped_sum(weights, rows, target, 1.0))[0] for _ in range(5))


def _noise_s() -> float:
    """Return what one site's share of a round's noise takes, once its tables are made."""
    size = Network(WIDTHS, "relu", "classes").size
    share = Fraction(1 << 20)
    return min(_timed(lambda: skellam.sample(share, size, BulkRandomSource()))[0] for _ in range(3))


def _pss_mb(sites: list[LocalSite]) -> float:
    """Return what all processes of the sites weigh, what they share divided among them."""
    whole = 0
    for process in _processes(sites):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text("utf-8").splitlines()
        whole += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return whole / _MB


def _cpu_s(sites: list[LocalSite]) -> float:
    """Return the seconds that processors have worked for the sites, and for this process."""
    ticks = 0
    for process in _processes(sites):
        said = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
        ticks += int(said[11]) + int(said[12])
    return ticks / os.sysconf("SC_CLK_TCK") + time.process_time()


def _processes(sites: list[LocalSite]) -> list[int]:
    """Return the sites' processes, and all that these have begun."""
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            parent = path.read_text("utf-8").rpartition(")")[2].split()[1]
            below.setdefault(int(parent), []).append(int(path.parent.name))
    found = [site.process.pid for site in sites]
    for process in found:  # grows
        found += below.get(process, [])
    return found
