"""The federation demo: several sites on this machine, each a real service."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sfumato.app.federation import FederatedVault, federation, new_convener
from sfumato.client import remote_vault
from sfumato.dp.refusal import Refused
from sfumato.system.randomness import SystemRandomSource

if TYPE_CHECKING:
    from sfumato.features.federated.convener import Progress
    from sfumato.features.federated.training.training_rounds import Step

DATA_SET: Final = "patients"
NAMES: Final = ("east", "north", "south", "west", "harbour", "hill", "lake", "market")
START_S: Final = 60.0
LEAST, MOST, PEOPLE = 4, len(NAMES), 2000
_COMMAND: Final = "import sys; from sfumato.app.command_line import main; sys.exit(main())"
_CARD: Final[dict[str, Any]] = {
    "unit": "patient",
    "limits": {"rows_per_person": 1},
    "budget": {"epsilon": 10, "delta": Decimal("2e-5")},
    "ask": {"who": ["researchers"]},
    "columns": {
        "age": {"type": "integer", "lower": 0, "upper": 100},
        "pressure": {"type": "integer", "lower": 80, "upper": 200},
        "smoker": {"type": "text", "keys": ["no", "yes"]},
    },
}
QUESTIONS: Final = (
    ("How many patients are there?", "SELECT COUNT(*) AS patients FROM patients"),
    (
        "What is the mean blood pressure of smokers and of non-smokers?",
        "SELECT smoker, COUNT(*) AS patients, AVG(pressure) AS pressure FROM patients"
        " GROUP BY smoker",
    ),
    (
        "How many patients are in each age group?",
        "SELECT FLOOR(age / 20) * 20 AS age_from, COUNT(*) AS patients FROM patients"
        " GROUP BY FLOOR(age / 20) * 20",
    ),
)
EPSILON, DELTA = 1, Decimal("1e-6")
Say = Callable[[str], None]


@dataclass(frozen=True)
class LocalSite:
    """One site of the demo on this machine: a vault's service with its own processes."""

    name: str
    url: str
    process: subprocess.Popen[str]
    invitation: str


def demo(folder: str, sites: int, say: Say) -> dict[str, Any]:  # Any: JSON
    """Run the demo, and return its results.

    It creates sites, joins and asks them, trains a model, kills one site, and asks again.
    """
    if not LEAST <= sites <= MOST:
        raise Refused(
            "bad-federation",
            f"The demo runs with {LEAST} to {MOST} sites.",
            "Choose a number in this range.",
        )
    root, names = Path(folder), NAMES[:sites]
    with ExitStack() as held:
        say(f"Starting {sites} sites. Each has its own vault, ledger and processes ...")
        made = [_site(held, root / name, place) for place, name in enumerate(names)]
        fed = _federated(held, root, made, say)
        answers = [_asked(fed, says, sql, say) for says, sql in QUESTIONS]
        say(
            "\n"
            "How does blood pressure depend on age? (least squares, from one noisy sum of "
            "moments)"
        )
        say(repr(fed[DATA_SET].linear("pressure", ["age"], epsilon=EPSILON, delta=DELTA)))
        trained = _trained(fed, root / "pressure.safetensors", say)
        say(f"\nNow the demo kills {made[-1].name}, like a power cut.")
        made[-1].process.kill()
        made[-1].process.wait()
        answers.append(_asked(fed, *QUESTIONS[0], say))
        spent = fed.spent(DATA_SET)
    say(
        "\n"
        "No site sent its own sums in the clear. Each added its share of the noise, and "
        "masks that"
    )
    say("cancel only in the sum over all remaining sites.")
    return {"answers": answers, "spent": spent, "trained": trained}


def _trained(fed: FederatedVault, out: Path, say: Say) -> dict[str, Any]:
    """Train a small network over the sites; measure its loss on synthetic, public rows."""
    rows = [_public(number) for number in range(400)]
    say(
        "\n"
        "The sites train a network that predicts blood pressure from age: 15 rounds, "
        "charged once."
    )

    def heard(step: Step) -> None:
        sites = f"  round {step.number:>2}: {len(step.sites)} sites"
        say(f"{sites}, squared error on public rows {step.model.loss(rows):.4f} (of the range)")

    quiet = FederatedVault(replace(fed.convener, heard=lambda _: None))
    model = quiet.train(
        DATA_SET, features=["age"], target="pressure", loss="squares", hidden=[4],
        activation="tanh", rounds=15, rate=0.2, momentum=0.5,
        people=PEOPLE * len(fed.convener.sites), epsilon=EPSILON, delta=DELTA, heard=heard,
    )  # fmt: skip
    model.save(out)
    say(f"  {model.card['says']}: {model.card['guarantee']}, epsilon {EPSILON} at each site.")
    return {"loss": model.loss(rows), "paid": model.card["paid"]}


def _public(number: int) -> dict[str, Any]:
    age = 20 + number * 31 % 68
    return {"age": age, "pressure": 107 + age // 2 + number * 29 % 21 - 10}


def _asked(fed: FederatedVault, says: str, sql: str, say: Say) -> dict[str, Any]:
    say(f"\n{says}\n  {sql}")
    answer = fed[DATA_SET].ask(sql, epsilon=EPSILON, delta=DELTA)
    say(repr(answer))
    spent = ", ".join(f"{name} {value:g}" for name, value in fed.spent(DATA_SET).items())
    say(f"epsilon spent at each site: {spent}")
    receipt = answer.receipt
    return {"rows": answer.rows, "sites": receipt["sites"], "left_out": receipt["left_out"]}


def _told(progress: Progress, say: Say) -> None:
    gone = ", ".join(f"{name} ({why.code})" for name, why in sorted(progress.gone.items()))
    line = f"  {progress.stage:<7}{len(progress.left)} sites"
    say(f"{line}; dropped out: {gone}" if gone else line)


def _federated(held: ExitStack, root: Path, made: list[LocalSite], say: Say) -> FederatedVault:
    """Let each site's owner join the agreement and admit a researcher; return the joint vault."""
    owners = {site.name: _taken_up(held, site.url, site.invitation) for site in made}
    keys = {name: owner.call("site-key", {})["key"] for name, owner in owners.items()}
    floor = max(len(made) // 2 + 1, -(-2 * len(made) // 3))
    agreement = {
        "name": "clinics",
        "convener": new_convener(root / "convener.key"),
        "sites": keys,
        "floor": floor,
        "colluders": 1,
    }
    ways = {}
    for site in made:
        owner = owners[site.name]
        owner.call("join-federation", {"data_set": DATA_SET, **agreement})
        invited = owner.call("invite", {"user": "ada", "roles": ["researcher"]})
        owner.call("grant", {"data_set": DATA_SET, "user": "ada", "group": "researchers"})
        ways[site.name] = _taken_up(held, site.url, str(invited["invitation"]))
    say(
        f"Their agreement: a sum needs {floor} of {len(made)} sites; the noise holds even "
        "if one site colludes."
    )
    return federation(
        agreement, key=root / "convener.key", sites=ways, heard=lambda p: _told(p, say)
    )


def _taken_up(held: ExitStack, url: str, invitation: str) -> remote_vault.RemoteVault:
    draw = SystemRandomSource().draw
    nobody = held.enter_context(remote_vault.connect(url, token="", draw=draw))
    made = nobody.call("take-up", {"invitation": invitation, "password": draw(16).hex()})
    return held.enter_context(remote_vault.connect(url, token=str(made["token"]), draw=draw))


def _site(held: ExitStack, folder: Path, place: int) -> LocalSite:
    from sfumato.app import vault as app

    folder.mkdir(parents=True)
    rows = _rows(folder / "patients.csv", place)
    app.create(folder / "vault", anchor=folder / "anchor")
    with app.open(folder / "vault") as vault:
        vault.add(DATA_SET, rows, {**_CARD, "people": f"patients-of-{folder.name}"})
    return held.enter_context(served(folder.name, folder / "vault"))


def _rows(path: Path, place: int) -> Path:
    """Write a site's synthetic patients as CSV; they are older than those of the site before."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("patient", "age", "pressure", "smoker"))
        for n in range(PEOPLE):
            age = 20 + 5 * place + n * 31 % 53
            smokes = (n * 17 + place) % 4 == 0
            pressure = 95 + age // 2 + 10 * smokes + n * 29 % 21
            writer.writerow((f"{path.parent.name}-{n}", age, pressure, "yes" if smokes else "no"))
    return path


@contextmanager
def served(name: str, vault: Path) -> Iterator[LocalSite]:
    """Serve a vault by its own processes on a free port of this machine."""
    command = [sys.executable, "-c", _COMMAND, "serve", "--vault", str(vault), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--quantum", "0"], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    try:
        yield _begun(name, process)
    finally:
        process.terminate()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def _begun(name: str, process: subprocess.Popen[str]) -> LocalSite:
    """Wait until the service prints its URL and its first invitation. Return the site."""
    said: list[str] = []
    has_link = threading.Event()

    def listen() -> None:
        for line in process.stderr or ():
            said.append(line)
            if "/welcome/" in line:
                has_link.set()
        has_link.set()

    threading.Thread(target=listen, daemon=True).start()
    has_link.wait(START_S)
    text = "".join(said)
    url, link = re.search(r" at (https?://\S+)", text), re.search(r"/welcome/(\S+)", text)
    if url is None or link is None:
        raise Refused(
            "service-down", f"The site {name!r} did not start.", "Read the site's output above."
        )
    return LocalSite(name, url[1], process, link[1])
