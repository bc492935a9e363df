"""Read the stored answer that a top-up improves: one of the asker's own, unchanged.

Only the asker's own operations are looked up, so nobody learns whether another user asked the
question. The key under which a top-up is stored contains the digest of the stored answer. So a user
who may see the stored answer may see its top-up, and the reverse.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np

from sfumato.dp.json_values import Json
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.refusal import Refused
from sfumato.query.earlier_answer import Draw, Earlier
from sfumato.query.price import Priced
from sfumato.query.request import Request, priced_request
from sfumato.release.ledger_guard import Ledger
from sfumato.release.plan_cache import PlanCache
from sfumato.vault.card.data_card import Card

RAISED: Final = "answer/3"  # the format that states the price of each draw


def priced_for(ledger: Ledger, plans: PlanCache, user: str, card: Card, request: Request) -> Priced:
    """Price a user's request; if the request names an earlier answer, price it as a top-up."""
    if request.top_up is None:
        return plans.priced(card, request)
    return priced_request(card, request, answer_to_raise(ledger, user, request.top_up))


def answer_to_raise(ledger: Ledger, user: str, op: str) -> Earlier:
    """Return the user's own stored answer that a top-up will make more precise; or refuse."""
    text = ledger.answer_of(user, op)
    if text is None:
        raise Refused(
            "top-up-unknown",
            "You have no answer with that operation id.",
            "Give the op of your earlier answer's receipt. Repeating the question is free.",
        )
    stored = json.loads(text)
    if stored["format"] != RAISED:
        raise Refused(
            "top-up-impossible",
            "This answer was stored by a version of sfumato that had no top-ups.",
            "Ask without a top-up, and pay in full.",
        )
    whole, chosen = stored["whole"], stored["selection"]
    return Earlier(
        op=op,
        digest=hashlib.sha256(text.encode()).hexdigest(),
        plan=stored["plan"],
        epsilon=Fraction(whole["epsilon"]),
        delta=Fraction(whole["delta"]),
        selection=chosen and (Fraction(chosen["epsilon"]), Fraction(chosen["delta"])),
        draws=tuple(map(_draw, [*stored["before"], stored])),
        keys=stored["keys"],
    )


def paid_json(priced: Priced) -> Json:
    """Return the fields about the price in a stored answer, which a later top-up needs."""
    earlier, selection = priced.earlier, priced.selection
    chosen = None if selection is None else (selection.epsilon, selection.delta)
    if earlier is not None:
        chosen = earlier.selection
    return {
        "plan": priced.plan.digest(),
        "epsilon": str(priced.epsilon),
        "delta": str(priced.delta),
        "noise": [noise.as_json() for noise in priced.noises],
        "whole": {
            "epsilon": str(priced.total or priced.epsilon),
            "delta": str(priced.delta if earlier is None else earlier.delta),
        },
        "selection": chosen and {"epsilon": str(chosen[0]), "delta": str(chosen[1])},
        "before": [] if earlier is None else [_draw_json(draw) for draw in earlier.draws],
    }


def top_up_json(priced: Priced) -> Json | None:
    """Return a receipt's fields about a top-up: earlier answer, price of each draw, and total.

    Return None if the answer is not a top-up.
    """
    earlier = priced.earlier
    if earlier is None:
        return None
    own = Draw(priced.epsilon, priced.delta, tuple(_numbers(priced.noises)), ())
    return {
        "of": earlier.op,
        "whole": {"epsilon": float(priced.total or 0), "delta": float(earlier.delta)},
        "paid_in_all": {
            "epsilon": float(sum(d.epsilon for d in (*earlier.draws, own))),
            "delta": float(sum(d.delta for d in (*earlier.draws, own))),
        },
        "draws": [_draw_said(draw) for draw in (*earlier.draws, own)],
        "says": (
            "the mean of independent draws, each weighted by the inverse of its variance"
            + (LESS_PRECISE if own.noises[0].kind == "laplace" and earlier.keys is None else "")
        ),
    }


LESS_PRECISE: Final = "; for Laplace noise that is less precise than one draw at the whole price"


def _draw_said(draw: Draw) -> Json:
    return {
        "epsilon": float(draw.epsilon),
        "delta": float(draw.delta),
        "noise": [{**noise.as_json(), "std": noise.std()} for noise in draw.noises],
    }


def _draw(stored: Mapping[str, Any]) -> Draw:  # Any: JSON that this module wrote
    return Draw(
        Fraction(stored["epsilon"]),
        Fraction(stored["delta"]),
        tuple(_numbers(map(_noise, stored["noise"]))),
        tuple(np.array(part, dtype=np.int64) for part in stored["parts"]),
    )


def _draw_json(draw: Draw) -> Json:
    return {
        "epsilon": str(draw.epsilon),
        "delta": str(draw.delta),
        "noise": [noise.as_json() for noise in draw.noises],
        "parts": [part.tolist() for part in draw.parts],
    }


def _noise(said: Mapping[str, str]) -> Noise | None:
    match said["kind"]:
        case "discrete laplace":
            return Noise("laplace", Fraction(said["scale"]))
        case "discrete gaussian":
            return Noise("gaussian", Fraction(said["variance"]))
        case _:
            return None  # a mechanism that chooses a value: a top-up can't improve it


def _numbers(noises: Iterable[object]) -> Sequence[Noise]:
    return [noise for noise in noises if isinstance(noise, Noise)]
