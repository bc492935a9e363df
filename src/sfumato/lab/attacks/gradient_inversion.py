"""Reconstruct training images from the gradient that a worker sends (Zhu, Liu and Han 2019).

A dense layer's weight gradient is the backpropagated error times the input, and its bias gradient
is that error alone. If only one example activates a neuron, weights over bias is that example,
exactly. So a server must never see one worker's gradient alone, nor one without noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sfumato.client.answer_chart import CONFIG, SCHEMA
from sfumato.client.ask_terms import Json
from sfumato.client.plot import Plot
from sfumato.lab.attack import EPSILONS_OPTION, Attack, Setting
from sfumato.lab.attack_report import Report, SuccessRate
from sfumato.lab.attacks.gradient_matching import fit
from sfumato.lab.dense_model import (
    SIDE,
    Dense,
    Floats,
    Gradient,
    Labels,
    clipped,
    draw_model,
    draw_pictures,
    private_sum,
)
from sfumato.lab.platform_noise import DELTA
from sfumato.lab.success_rate_bounds import hit_rate_bound

NEURONS: Final = 128
BATCH: Final = 8
LINEUP: Final = 10  # the number of candidate images; one of them is behind a noisy gradient
CLIP: Final = 1.0
EXACT: Final = 1e-6
FITTED: Final = 2  # the number of images in a fitted batch
FITS: Final = 50  # fitting costs 50 times as much as the rest, so it has 1/50 of the runs
SILENT: Final = 1e-9  # a neuron with a smaller bias gradient was inactive for the whole batch


def invert_one(first: Floats, bias: Floats) -> Floats:
    """Reconstruct the single input behind the gradient of a network's first layer.

    The result is exact, whatever the scale of the gradient.
    """
    loudest = int(np.abs(bias).argmax())
    found: Floats = first[loudest] / bias[loudest]
    return found


def label_of_one(last_bias: Floats) -> int:
    """Return the label of a single example, which is the only label whose score training raises."""
    return int(last_bias.argmin())


def separate(first: Floats, bias: Floats) -> Floats:
    """Reconstruct the inputs of a batch that alone activated two or more neurons.

    At such a neuron, the weight gradient divided by the bias gradient is the input. A mixture of
    inputs gives a quotient that no other neuron has.
    """
    loud = np.abs(bias) > SILENT
    return _agreed(first[loud] / bias[loud, None])


def plant_rulers(model: Dense, brightness: Floats) -> Dense:
    """Replace the first layer by one that sorts inputs by brightness (Fowl et al. 2022).

    Each neuron tests whether the input's mean exceeds the neuron's threshold. A malicious server
    can send this model; it takes the thresholds from public images.
    """
    neurons, inputs = model.first.shape
    marks = np.quantile(brightness, (np.arange(neurons) + 0.5) / neurons)
    last = np.repeat(model.last[:, :1], neurons, axis=1)
    return replace(
        model, first=np.full((neurons, inputs), 1 / inputs), first_bias=-marks, last=last
    )


def between_rulers(first: Floats, bias: Floats) -> Floats:
    """Reconstruct the inputs whose brightness is alone between two neighbouring thresholds.

    `plant_rulers` gives each neuron a threshold. The difference of neighbouring neurons' weight
    gradients, divided by that of their bias gradients, is the input.
    """
    firsts = np.diff(first, axis=0, append=0)
    biases = np.diff(bias, append=0)
    loud = np.abs(biases) > SILENT
    found: Floats = firsts[loud] / biases[loud, None]
    return found


def pick(released: Floats, lineup: Floats) -> int:
    """Return the index of the candidate gradient that is nearest to the released one."""
    return int(((lineup - released) ** 2).sum(axis=1).argmin())


def rebuilt(found: Floats, truths: Floats) -> int:
    """Return how many of the true inputs were reconstructed up to rounding."""
    if len(found) == 0:
        return 0
    apart = np.abs(found[:, None, :] - truths[None, :, :]).max(axis=2)
    return int((apart.min(axis=0) < EXACT).sum())


def _agreed(ratios: Floats) -> Floats:
    """Return the quotients that two or more neurons share, each once: they are the inputs."""
    if len(ratios) == 0:
        return ratios
    near = np.abs(ratios[:, None, :] - ratios[None, :, :]).max(axis=2) < EXACT
    first = near.argmax(axis=1) == np.arange(len(ratios))
    agreed: Floats = ratios[first & (near.sum(axis=1) > 1)]
    return agreed


def _run(setting: Setting) -> Report:
    batch = setting.whole("batch", BATCH, least=2, most=64)
    bare = (*_bare(setting, batch), _fitted(setting))
    successes = (*bare, *(_noisy(setting, e) for e in setting.epsilons()))
    return Report(
        attack="gradients",
        title="Reconstructing training pictures from the gradients of a small model",
        knows="The attacker is the server: it knows the model and sees a worker's gradient.",
        measure=f"pictures reconstructed exactly; with noise, chosen correctly among {LINEUP} "
        "pictures",
        successes=successes,
        finding=_finding(successes, batch),
        guessing=1 / LINEUP,
        pictures=(_faces(setting),),
    )


@dataclass(frozen=True)
class _Drawn:
    model: Dense
    pictures: Floats
    labels: Labels

    @staticmethod
    def of(count: int, dice: np.random.Generator) -> _Drawn:
        return _Drawn(draw_model(NEURONS, dice), *draw_pictures(count, dice))

    @property
    def gradients(self) -> Gradient:
        return self.model.gradients(self.pictures, self.labels)


def _bare(setting: Setting, batch: int) -> tuple[SuccessRate, ...]:
    """Attack gradients without noise; return the success rates for single and summed gradients."""
    one = short = many = planted = 0
    for _ in range(setting.runs):
        drawn = _Drawn.of(batch, setting.dice)
        alone = drawn.gradients
        one += _is_exact(Gradient(*(part[0] for part in alone.parts)), drawn)
        short += _is_exact(alone.shaped(clipped(alone.flat(), CLIP / 10)[0]), drawn)
        summed = alone.summed()
        many += rebuilt(separate(summed.first, summed.first_bias), drawn.pictures)
        bright = draw_pictures(500, setting.dice)[0].mean(axis=1)
        ruled = replace(drawn, model=plant_rulers(drawn.model, bright)).gradients.summed()
        planted += rebuilt(between_rulers(ruled.first, ruled.first_bias), drawn.pictures)
    tries = batch * setting.runs
    return (
        SuccessRate("one picture", one, setting.runs),
        SuccessRate("one picture, clipped to a tenth", short, setting.runs),
        SuccessRate(f"{batch} pictures together", many, tries),
        SuccessRate(f"{batch} together, planted first layer", planted, tries),
    )


def _fitted(setting: Setting) -> SuccessRate:
    """Return the success rate of gradient matching.

    It uses a spawned generator, so the other attacks draw the same numbers as without it.
    """
    runs, found, (dice,) = max(1, setting.runs // FITS), 0, setting.dice.spawn(1)
    for _ in range(runs):
        drawn = _Drawn.of(FITTED, dice)
        fitted = fit(drawn.model, drawn.gradients.summed(), drawn.labels, dice=dice)
        found += rebuilt(fitted.inputs, drawn.pictures)
    return SuccessRate(f"{FITTED} pictures together, fitted", found, FITTED * runs)


def _is_exact(gradient: Gradient, drawn: _Drawn) -> bool:
    return rebuilt(invert_one(gradient.first, gradient.first_bias)[None], drawn.pictures[:1]) == 1


def _noisy(setting: Setting, epsilon: float) -> SuccessRate:
    """Return how often the attacker picks the image behind a clipped, noisy gradient."""
    hits = 0
    for _ in range(setting.runs):
        rows = _Drawn.of(LINEUP, setting.dice).gradients.flat()
        released = private_sum(rows[:1], most=CLIP, epsilon=epsilon, dice=setting.dice)
        # in random order, so that a tie does not favour the target
        order = setting.dice.permutation(LINEUP)
        hits += int(order[pick(released, clipped(rows, CLIP)[order])]) == 0
    bound = hit_rate_bound(epsilon, 1 / LINEUP, DELTA)
    return SuccessRate(f"epsilon = {epsilon:g}", hits, setting.runs, epsilon, bound, "one step")


def _finding(successes: tuple[SuccessRate, ...], batch: int) -> str:
    one, _, many, planted, fitted = successes[:5]
    noisy = ", ".join(f"{s.rate:.0%} at epsilon {s.epsilon:g}" for s in successes[5:])
    return (
        f"The gradient of one picture reveals that picture ({one.rate:.0%} "
        f"reconstructed exactly), and clipping does not change that. Of {batch} "
        f"pictures in one gradient, {many.rate:.0%} are reconstructed, and "
        f"{planted.rate:.0%} if the server chose the first layer. Fitting reconstructs "
        f"{fitted.rate:.0%} of {FITTED} pictures. With clipping and noise, the attacker "
        f"chooses the right one of {LINEUP} pictures for {noisy}; chance alone gives "
        f"{1 / LINEUP:.0%}."
    )


def _faces(setting: Setting) -> Plot:
    """Plot one image, and its reconstructions from exact and from noisy gradients."""
    drawn = _Drawn.of(1, setting.dice)
    alone = drawn.gradients
    shown = {"the picture": drawn.pictures[0]}
    shown["from its gradient"] = invert_one(alone.first[0], alone.first_bias[0])
    for epsilon in sorted(setting.epsilons(), reverse=True):
        row = private_sum(alone.flat(), most=CLIP, epsilon=epsilon, dice=setting.dice)
        noisy = alone.shaped(row)
        shown[f"epsilon = {epsilon:g}"] = _averaged(noisy.first, noisy.first_bias)
    title = "One picture, and its reconstructions from gradients"
    errors = {
        name: np.sqrt(((one - shown["the picture"]) ** 2).mean()) for name, one in shown.items()
    }
    return Plot(
        spec=_faces_spec(shown, title),
        title=title,
        summary=f"{title}. Typical error of a pixel: "
        + ", ".join(f"{name} {error:.2g}" for name, error in errors.items()),
        columns=("rebuilt", "typical error of a pixel"),
        cells=tuple((name, f"{error:.2g}") for name, error in errors.items()),
    )


def _averaged(first: Floats, bias: Floats) -> Floats:
    """Reconstruct one input from a noisy gradient: the input that fits all neurons best.

    Under noise, it is better than the input from a single neuron.
    """
    together = np.concatenate([first, bias[:, None]], axis=1)
    main = np.linalg.svd(together, full_matrices=False)[2][0]
    found: Floats = np.clip(main[:-1] / main[-1], 0, 1)
    return found


def _faces_spec(shown: dict[str, Floats], title: str) -> Json:
    dots = [
        {"of": name, "x": place % SIDE, "y": place // SIDE, "dark": float(value)}
        for name, picture in shown.items()
        for place, value in enumerate(np.clip(picture, 0, 1))
    ]
    square: Json = {"type": "ordinal", "axis": None}
    dark: Json = {"field": "dark", "type": "quantitative", "legend": None,
                  "scale": {"scheme": "greys", "domain": [0, 1]}}  # fmt: skip
    return {
        "$schema": SCHEMA, "config": CONFIG, "title": title, "data": {"values": dots},
        "facet": {"field": "of", "type": "nominal", "sort": list(shown), "title": None},
        "columns": 5,
        "spec": {"width": 110, "height": 110, "mark": "rect", "encoding": {
            "x": {**square, "field": "x"}, "y": {**square, "field": "y"}, "color": dark}},
    }  # fmt: skip


ATTACK: Final = Attack(
    "gradients",
    "reconstruct training pictures from a model's gradients",
    _run,
    runs=200,
    options={"batch": "how many pictures share a gradient", **EPSILONS_OPTION},
)
