"""The definition of a federated training: columns, network and schedule, fixed before any data.

The network protocol calls a training task a lesson. The number of rounds and the name are fixed
too, so that a site pays once for all rounds and answers no round twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from sfumato.dp.budget import read_number
from sfumato.dp.json_values import Json
from sfumato.dp.learning.input_layers import (
    MAX_ADDED,
    NO_INPUT_LAYERS,
    InputLayersSpec,
    read_input_layers_spec,
)
from sfumato.dp.refusal import Refused

CLASSES, SQUARES = "classes", "squares"
SITE, PERSON = "site", "person"
ACTIVATIONS: Final = ("relu", "tanh")
MAX_FEATURES: Final = 4096
MAX_WIDTH: Final = 1024  # most hidden units or classes; sums stay exact (integer_network.py)
MAX_HIDDEN: Final = 8
MAX_SIZE: Final = 60_000  # parameters of a model, so that it fits in one service message
MAX_ROUNDS: Final = 10_000
MAX_LOCAL: Final = 1000
MAX_CLIP: Final = 4
MIN_SAMPLE: Final = Fraction(1, 10**6)
MAX_OF_ONE: Final = 4096  # rows of one person, if local steps are per person
MAX_CELLS: Final = 1 << 22  # most cells of one such person, which an engine fetches at once
NAME_DIGITS: Final = 64
_KEYS: Final = {
    "name", "features", "target", "hidden", "activation", "loss", "rounds", "clip", "local",
    "rate", "proximal", "max_rows", "weights", "each", "sample", "image", "conv", "embed",
}  # fmt: skip


@dataclass(frozen=True)
class TrainingTask:
    """A federated training task: model, number of rounds, and clipping.

    - `local` = 0: a round sums the clipped gradients of all rows (full-batch DP-SGD).
    - `local` > 0, `each` = site: each site takes that many local steps, and clips its whole update
      (DP-FedAvg). With `proximal`, a term pulls the update towards the common model (FedProx).
    - `local` > 0, `each` = person: the site takes the local steps on each person's rows separately.
      It clips each person's update, and sends the sum.

    With `sample` below 1, each person is in a round with that probability (Poisson subsampling).
    The site draws the sample afresh for each round and keeps it secret.
    """

    name: str  # 64 hex digits, drawn afresh for each training
    features: tuple[str, ...]
    target: str
    hidden: tuple[int, ...]
    activation: str
    loss: str
    rounds: int
    clip: Fraction
    local: int = 0
    rate: Fraction = Fraction(0)
    proximal: Fraction = Fraction(0)
    max_rows: int = 1
    weights: tuple[tuple[str, Fraction], ...] = ()  # public weight of each site, at most 1
    each: str = SITE  # with local steps: whose update is clipped as a whole
    sample: Fraction = Fraction(1)  # probability that a person is in a round
    opening: InputLayersSpec = NO_INPUT_LAYERS  # the layers before the linear ones

    def weight_of(self, site: str) -> Fraction:
        """Return the public weight of a site's update; 1 if the task does not name the site.

        The sum over the sites is weighted with it.
        """
        return dict(self.weights).get(site, Fraction(1))

    @property
    def is_of_sites(self) -> bool:
        """Return whether each site's whole update is clipped, not the update of each person.

        It is so if the sites take local steps and `each` is site.
        """
        return bool(self.local) and self.each == SITE

    def as_json(self) -> Json:
        """Return the training task as JSON, as it is sent to the sites and signed.

        `each`, `sample` and the opening (input layers) are omitted at their defaults. So the JSON
        of older tasks, from before these keys existed, stays the same.
        """
        each = {} if self.each == SITE else {"each": self.each}
        sample = {} if self.sample == 1 else {"sample": str(self.sample)}
        return {
            "name": self.name,
            "features": list(self.features),
            "target": self.target,
            "hidden": list(self.hidden),
            "activation": self.activation,
            "loss": self.loss,
            "rounds": self.rounds,
            "clip": str(self.clip),
            "local": self.local,
            "rate": str(self.rate),
            "proximal": str(self.proximal),
            "max_rows": self.max_rows,
            "weights": {site: str(weight) for site, weight in self.weights},
            **each,
            **sample,
            **self.opening.as_json(),
        }


def read_training_task(shape: object) -> TrainingTask:
    """Read a training task from parsed JSON, and check all its values; refuse a malformed task."""
    if not isinstance(shape, Mapping) or not set(shape) <= _KEYS:
        raise bad_lesson(f"it must be an object with {', '.join(sorted(_KEYS))}")
    features, target = _texts(shape.get("features"), "features"), _text(shape.get("target"))
    if not 1 <= len(features) <= MAX_FEATURES or len(set(features)) < len(features):
        raise bad_lesson(f"features must be 1 to {MAX_FEATURES} columns, each named once")
    made = TrainingTask(
        name=_name(shape.get("name")),
        features=features,
        target=target,
        hidden=_hidden(shape.get("hidden", [])),
        activation=_one_of(shape.get("activation", "relu"), ACTIVATIONS, "activation"),
        loss=_one_of(shape.get("loss", CLASSES), (CLASSES, SQUARES), "loss"),
        rounds=_count(shape.get("rounds"), "rounds", 1, MAX_ROUNDS),
        clip=_number(shape.get("clip"), "clip", Fraction(1, 1000), Fraction(MAX_CLIP)),
        local=_count(shape.get("local", 0), "local", 0, MAX_LOCAL),
        rate=_number(shape.get("rate", 0), "rate", Fraction(0), Fraction(100)),
        proximal=_number(shape.get("proximal", 0), "proximal", Fraction(0), Fraction(100)),
        max_rows=_count(shape.get("max_rows", 1), "max_rows", 1, 10**6),
        weights=_weights(shape.get("weights", {})),
        each=_one_of(shape.get("each", SITE), (SITE, PERSON), "each"),
        sample=_number(shape.get("sample", 1), "sample", MIN_SAMPLE, Fraction(1)),
        opening=read_input_layers_spec(shape),
    )
    places = made.opening.places(features)
    if bool(made.local) != bool(made.rate):
        raise bad_lesson(
            "rate is for local steps only; the convener's own rate is not part of the training task"
        )
    if (made.proximal or made.weights) and not made.local:
        raise bad_lesson("proximal and weights are for local steps only")
    if made.sample < 1 and made.is_of_sites:
        raise bad_lesson(
            "sample needs gradients, or local steps of each person; otherwise a site's whole "
            "update is protected as one, and no sample changes that"
        )
    if made.each == PERSON:
        _check_person(made, places)
    return made


def _check_person(lesson: TrainingTask, places: int) -> None:
    """Refuse a task with one update per person if a person's rows could need too much memory."""
    if lesson.weights or not lesson.local or lesson.max_rows > MAX_OF_ONE:
        raise bad_lesson(
            "an update per person needs local steps, no weights of sites, and at most "
            f"{MAX_OF_ONE:,} rows"
        )
    if lesson.max_rows * len(lesson.features) > MAX_CELLS:
        raise bad_lesson(
            f"max_rows times the number of features may be at most {MAX_CELLS:,} if each "
            "person's update is clipped"
        )
    if lesson.max_rows * places > MAX_ADDED:
        raise bad_lesson(
            f"max_rows times the positions of a kernel ({places:,}) may be at most "
            f"{MAX_ADDED:,} if each person's update is clipped"
        )


def bad_lesson(why: str) -> Refused:
    """Build the refusal (an exception) of a malformed training task; `why` says what is wrong."""
    return Refused(
        "bad-request",
        f"The training task is malformed: {why}.",
        "docs/how-to/sites.md describes training.",
    )


def _name(found: object) -> str:
    if not isinstance(found, str) or len(found) != NAME_DIGITS:
        raise bad_lesson(f"its name must have {NAME_DIGITS} hexadecimal digits")
    if set(found) - set("0123456789abcdef"):
        raise bad_lesson(f"its name must have {NAME_DIGITS} hexadecimal digits")
    return found


def _text(found: object) -> str:
    if not isinstance(found, str) or not 1 <= len(found) <= 200:
        raise bad_lesson("a column's name must have 1 to 200 letters")
    return found


def _texts(found: object, name: str) -> tuple[str, ...]:
    if not isinstance(found, list):
        raise bad_lesson(f"{name} must be a list of columns")
    return tuple(_text(one) for one in found)


def _one_of(found: object, known: tuple[str, ...], name: str) -> str:
    if found not in known:
        raise bad_lesson(f"{name} must be one of {', '.join(known)}")
    return str(found)


def _count(found: object, name: str, least: int, most: int) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        raise bad_lesson(f"{name} must be a whole number from {least} to {most}")
    return found


def _number(found: object, name: str, least: Fraction, most: Fraction) -> Fraction:
    value = read_number(found, f"lesson.{name}")
    if not least <= value <= most or value.denominator > 10**12:
        raise bad_lesson(f"{name} must be from {least} to {most}")
    return value


def _hidden(found: object) -> tuple[int, ...]:
    if not isinstance(found, list) or len(found) > MAX_HIDDEN:
        raise bad_lesson(f"hidden must be a list of at most {MAX_HIDDEN} widths")
    return tuple(_count(width, "a hidden layer's width", 1, MAX_WIDTH) for width in found)


def _weights(found: object) -> tuple[tuple[str, Fraction], ...]:
    if not isinstance(found, Mapping) or len(found) > MAX_WIDTH:
        raise bad_lesson("weights must be an object of sites and numbers")
    low, high = Fraction(1, 1000), Fraction(1)
    pairs = ((_text(site), _number(one, "a weight", low, high)) for site, one in found.items())
    return tuple(sorted(pairs))
