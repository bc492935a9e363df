"""Each layer of the list: what a person's gradient of it is, how it travels, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed: make .venv/torch.done")

from torch import nn  # noqa: E402

from sfumato.dp.refusal import Bug, Refused  # noqa: E402
from sfumato.dp.secure_aggregation.stochastic_rounding import PeopleGrid  # noqa: E402
from sfumato.features.federated.tensors.tensor_messages import decode, encode  # noqa: E402
from sfumato.features.federated.training import clipped_gradients  # noqa: E402
from sfumato.features.federated.training.clipped_gradients import (  # noqa: E402
    clipped_sum,
    squared_norms,
)
from sfumato.features.federated.training.layers import made_of, words_of  # noqa: E402

Layers = Callable[[], list[Any]]  # Any: modules
Shape = tuple[int, ...] | None  # of a row; None: tokens


def encoder(**terms: Any) -> Any:
    said = {"dropout": 0.0, "batch_first": True, **terms}
    return nn.TransformerEncoderLayer(4, 2, 6, **said)


def again() -> list[Any]:
    layer = nn.Linear(4, 4)
    return [layer, nn.Tanh(), layer, nn.Tanh(), nn.Linear(4, 3)]


def tied() -> list[Any]:
    tokens, head = nn.Embedding(4, 5), nn.Linear(5, 4)
    head.weight = tokens.weight
    return [tokens, nn.Tanh(), head, nn.Flatten(), nn.Linear(28, 3)]


def tied_convolutions() -> list[Any]:
    first, second = nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1)
    second.weight = first.weight
    return [first, nn.SiLU(), second, nn.Flatten(), nn.Linear(72, 3)]


def beside(layer: Any) -> Layers:
    return lambda: [nn.Linear(4, 5), layer, nn.Linear(5, 3)]


BENT = [
    nn.LeakyReLU(0.2), nn.ELU(0.7), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Softplus(2.0, 10.0),
    nn.Identity(), nn.CELU(1.5), nn.Hardtanh(-0.5, 0.75), nn.Mish(), nn.SELU(), nn.Softsign(),
    nn.LogSigmoid(), nn.ReLU6(), nn.Hardswish(), nn.Hardsigmoid(), nn.Softmax(-1), nn.Softmax(1),
    nn.LogSoftmax(-1),
]  # fmt: skip
PICTURES, STEPS, WIDE = (2, 6, 6), (3, 7), (5, 4)
NETS: dict[str, tuple[Layers, Shape]] = {
    "convolutions of sequences": (
        lambda: [nn.Conv1d(3, 4, 3, padding=1), nn.GELU(), nn.MaxPool1d(2), nn.Conv1d(4, 2, 2),
                 nn.AvgPool1d(2), nn.Flatten(), nn.Linear(2, 3)], STEPS),
    "one that is long and narrow": (
        lambda: [nn.Conv1d(3, 40, 3, 2, bias=False), nn.Flatten(), nn.Linear(120, 3)], STEPS),
    "rows normalised": (lambda: [nn.Linear(4, 6), nn.LayerNorm(6), nn.SiLU(), nn.Linear(6, 3)],
                        (4,)),
    "places normalised": (
        lambda: [nn.LayerNorm(4), nn.Linear(4, 6), nn.LayerNorm((5, 6), eps=1e-3), nn.Flatten(),
                 nn.Linear(30, 3)], WIDE),
    "groups normalised": (
        lambda: [nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ELU(), nn.AdaptiveAvgPool2d(2),
                 nn.Flatten(), nn.Linear(16, 3), nn.GroupNorm(1, 3)], PICTURES),
    "groups of sequences": (
        lambda: [nn.GroupNorm(3, 3), nn.Conv1d(3, 3, 2, groups=3), nn.Flatten(),
                 nn.Linear(18, 3)], STEPS),
    "grouped convolutions": (
        lambda: [nn.Conv2d(2, 4, 3, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)],
        PICTURES),
    "round about": (
        lambda: [nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"),
                 nn.Conv2d(2, 2, 3, padding="same"), nn.Flatten(), nn.Linear(72, 3)], PICTURES),
    "slopes that are learnt": (lambda: [nn.Linear(4, 5), nn.PReLU(5), nn.Linear(5, 3),
                                        nn.PReLU()], (4,)),
    "attention": (lambda: [nn.Linear(4, 4), encoder(), nn.Flatten(), nn.Linear(20, 3)], WIDE),
    "attention, otherwise": (
        lambda: [encoder(activation="gelu", norm_first=True, layer_norm_eps=1e-4), nn.Flatten(),
                 nn.Linear(20, 3)], WIDE),
    "attention to tokens": (
        lambda: [nn.Embedding(4, 4), encoder(), nn.Flatten(), nn.Linear(28, 3)], None),
    "a layer again": (again, (4,)),
    "a layer again, on sequences": (lambda: [*again(), nn.Flatten(), nn.Linear(15, 3)], WIDE),
    "a weight of two": (tied, None),
    "a weight of two convolutions": (tied_convolutions, PICTURES),
    "no biases": (lambda: [nn.Conv2d(2, 2, 3, bias=False), nn.Flatten(),
                           nn.Linear(32, 3, bias=False)], PICTURES),
    "a sequence in another": (
        lambda: [nn.Sequential(nn.Linear(4, 5), nn.Sequential(nn.LayerNorm(5), nn.Tanh())),
                 nn.Linear(5, 3)], (4,)),
    **{f"{layer}": (beside(layer), (4,)) for layer in BENT},
}  # fmt: skip
NAMED = pytest.mark.parametrize("name", NETS)
ODD = ("round about",)  # which has no words


def made(name: str, count: int = 8) -> tuple[Any, Any, Any]:
    """The model, rows for it, and their classes."""
    torch.manual_seed(11)
    layers, shape = NETS[name]
    model = nn.Sequential(*layers()).double()
    with torch.no_grad():  # weights that normalise begin as ones, which would hide a mistake
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.3)
    rows = torch.randint(0, 4, (count, 7)).double() if shape is None else torch.randn(count, *shape)
    return model, rows.double(), torch.arange(count) % 3


def alone(model: Any, rows: Any, target: Any) -> np.ndarray:
    """Every row's own gradient: one backward for each."""
    found = []
    for x, y in zip(rows, target, strict=True):
        model.zero_grad()
        is_of_tokens = isinstance(model[0], nn.Embedding)
        said = model(x[None].long() if is_of_tokens else x[None])
        nn.functional.cross_entropy(said, y[None]).backward()
        found.append(torch.cat([p.grad.reshape(-1) for p in model.parameters()]).numpy())
    return np.array(found)


def check_sums(model: Any, rows: Any, target: Any) -> None:
    """At clips that shorten all rows, some, and none."""
    each = alone(model, rows, target)
    norms = np.linalg.norm(each, axis=1)
    for clip in (float(norms.min()) / 2, float(np.median(norms)), 1e6):
        wanted = (each * np.minimum(1, clip / norms)[:, None]).sum(axis=0)
        found = clipped_sum(model, rows, target, "cross_entropy", clip)
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-11)


@NAMED
def test_the_clipped_sum_is_that_of_one_backward_for_each_row(name: str) -> None:
    check_sums(*made(name))


@NAMED
def test_each_use_of_a_layer_has_its_exact_norm(name: str, monkeypatch: Any) -> None:
    """Of one parameter at a time, so that no part hides behind a larger one."""
    model, rows, target = made(name)
    each = alone(model, rows, target)
    seen: list[Any] = []
    real = clipped_gradients._squares

    def heard(*said: Any) -> Any:
        seen.append(said)
        return real(*said)

    monkeypatch.setattr(clipped_gradients, "_squares", heard)
    clipped_sum(model, rows, target, "cross_entropy", 1.0)
    ((measured, by_one),) = seen
    found = dict(by_one.items())
    start = 0
    squares = {}
    for parameter in model.parameters():
        end = start + parameter.numel()
        squares[id(parameter)] = np.square(each[:, start:end]).sum(axis=1)
        start = end
    for key, part in found.items():
        own = part.detach().square().flatten(1).sum(1).numpy()
        np.testing.assert_allclose(own, squares.pop(key), rtol=1e-9, atol=1e-18)
    for use in measured:
        wanted = sum(squares.pop(id(p)) for p in use[0].parameters())
        own = clipped_gradients.squared_norms(*use).detach().numpy()
        np.testing.assert_allclose(own, wanted, rtol=1e-9, atol=1e-18)
    assert not squares


@NAMED
def test_a_row_removed_moves_the_sum_by_the_clip_at_most(name: str) -> None:
    model, rows, target = made(name, 5)
    rows = rows if isinstance(model[0], nn.Embedding) else rows * 1e3
    whole = clipped_sum(model, rows, target, "cross_entropy", 0.01)
    for gone in range(5):
        kept = [row for row in range(5) if row != gone]
        part = clipped_sum(model, rows[kept], target[kept], "cross_entropy", 0.01)
        assert np.linalg.norm(whole - part) <= 0.01 * (1 + 1e-9)


@NAMED
def test_no_number_of_rows_makes_it_fail(name: str) -> None:
    """To fail would tell how many there are."""
    model, rows, target = made(name, 2)
    for count in (0, 1, 2):
        found = clipped_sum(model, rows[:count], target[:count], "cross_entropy", 1.0)
        assert np.isfinite(found).all()
        assert np.any(found) == (count > 0)


@NAMED
def test_a_spoilt_row_adds_nothing(name: str) -> None:
    model, rows, target = made(name, 4)
    others = clipped_sum(model, rows[1:], target[1:], "cross_entropy", 0.1)
    rows[0] = float("nan")
    whole = clipped_sum(model, rows, target, "cross_entropy", 0.1)
    assert np.isfinite(whole).all()
    assert np.linalg.norm(whole - others) <= 0.1 * (1 + 1e-9)


@NAMED
def test_rows_taken_few_at_a_time_add_up_to_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, rows, target = made(name, 5)
    wanted = clipped_sum(model, rows, target, "cross_entropy", 0.5)
    monkeypatch.setattr(clipped_gradients, "MADE_AT_ONCE", 1)
    found = clipped_sum(model, rows, target, "cross_entropy", 0.5)
    np.testing.assert_allclose(found, wanted, atol=1e-12)


# --- shapes that nobody chose -------------------------------------------------------------------

SMALL = st.integers(1, 4)
MIXED = ("conv", "group", "layer", "linear", "encoder", "bent", "slopes")


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[Any, tuple[int, ...]]:
    """A model of any layers in any order that fits, and the shape of its rows."""
    channels, places = draw(SMALL), draw(st.integers(2, 6))
    shape = (channels, places)
    layers: list[Any] = []
    for kind in draw(st.lists(st.sampled_from(MIXED), min_size=1, max_size=4)):
        match kind:
            case "conv":
                side, outs, edge = (
                    draw(st.integers(1, places)),
                    draw(SMALL),
                    draw(st.integers(0, 1)),
                )
                is_bare = draw(st.booleans())
                layers.append(nn.Conv1d(channels, outs, side, padding=edge, bias=not is_bare))
                channels, places = outs, places + 2 * edge - side + 1
            case "group" if channels * places > channels:
                groups = draw(st.sampled_from([n for n in range(1, 5) if channels % n == 0]))
                layers.append(nn.GroupNorm(groups, channels))
            case "layer":
                layers.append(nn.LayerNorm(draw(st.sampled_from([(places,), (channels, places)]))))
            case "linear":
                outs = draw(SMALL)
                layers.append(nn.Linear(places, outs))
                places = outs
            case "encoder":
                heads = draw(st.sampled_from([n for n in range(1, 5) if places % n == 0]))
                layers.append(nn.TransformerEncoderLayer(
                    places, heads, draw(SMALL), dropout=0.0, batch_first=True))  # fmt: skip
            case "slopes":
                layers.append(nn.PReLU(channels))
            case "bent":
                layers.append(draw(st.sampled_from(BENT[:10])))
    return [*layers, nn.Flatten(), nn.Linear(channels * places, 3)], shape


@settings(max_examples=15, deadline=None)
@given(mixtures(), st.integers(0, 1 << 30))
def test_mixtures_of_any_shape_have_the_clipped_sum_of_one_backward_for_each(
    mixture: tuple[Any, tuple[int, ...]], seed: int
) -> None:
    layers, shape = mixture
    torch.manual_seed(seed)
    model = nn.Sequential(*layers).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    rows = torch.randn(3, *shape).double()
    check_sums(model, rows, torch.arange(3))
    whole = clipped_sum(model, rows, torch.arange(3), "cross_entropy", 0.3)
    part = clipped_sum(model, rows[1:], torch.arange(1, 3), "cross_entropy", 0.3)
    assert np.linalg.norm(whole - part) <= 0.3 * (1 + 1e-9)


# --- whoever chose the weights ------------------------------------------------------------------


def cancelling(kind: str) -> tuple[Any, Any]:
    """A model whose weights make what comes back at two places cancel, and a row for it."""
    layers = {
        "pairs": lambda: [nn.Linear(40, 40), nn.Flatten(), nn.Linear(80, 1, bias=False)],
        "made": lambda: [nn.Linear(2, 2), nn.Flatten(), nn.Linear(80, 1, bias=False)],
        "tokens": lambda: [nn.Embedding(3, 40), nn.Flatten(), nn.Linear(80, 1, bias=False)],
    }
    model = nn.Sequential(*layers[kind]()).double()
    count = 40 if kind == "made" else 2
    with torch.no_grad():
        model[0].weight.zero_()
        last = torch.randn(80 // count).double() * 1e9
        sides = [last * (-1) ** n for n in range(count)]
        if kind == "tokens":  # which are nearly the opposite, and still tell something
            sides[1] = sides[1] * (1 + 1e-9)
        model[-1].weight.copy_(torch.cat(sides)[None])
    if kind == "tokens":
        return model, torch.ones(1, 2).double()
    width = model[0].in_features
    base = torch.randn(width).double() * 1e8
    return model, (base + torch.randn(count, width).double() * 1e-1)[None]


@pytest.mark.parametrize("kind", ["pairs", "made", "tokens"])
def test_no_weights_make_rounding_let_a_row_through(kind: str) -> None:
    """Norms by pairs of places cancelled to anything: such a row weighed a thousand millions."""
    for seed in range(20):
        torch.manual_seed(seed)
        model, row = cancelling(kind)
        found = clipped_sum(model, row, torch.full((1, 1), -0.5), "mse", 1.0)
        assert np.linalg.norm(found) <= 1 + 1e-6


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        (lambda: [nn.Linear(5, 3)], ()),
        (lambda: [nn.LayerNorm((5, 4)), nn.Linear(4, 3)], (4,)),
        (lambda: [nn.Softmax(2), nn.Linear(4, 3)], (4,)),
        (lambda: [nn.Flatten(), nn.Linear(5, 3)], ()),
        (lambda: [nn.Conv1d(5, 2, 1), nn.Flatten(), nn.Linear(8, 3)], (4,)),
        (lambda: [encoder(), nn.Linear(4, 3)], (4,)),
        (lambda: [nn.GroupNorm(4, 4), nn.Linear(4, 3)], (4,)),
    ],
    ids=["linear", "layer norm", "softmax", "flatten", "convolution", "attention", "group norm"],
)
def test_rows_that_would_be_taken_for_something_else_are_refused_however_many(
    layers: Layers, shape: tuple[int, ...]
) -> None:
    said = set()
    for count in (0, 1, 4, 5, 6):
        with pytest.raises(Refused) as seen:
            clipped_sum(nn.Sequential(*layers()), torch.rand(count, *shape), torch.zeros(count),
                        "cross_entropy", 1.0)  # fmt: skip
        said.add(f"{seen.value}")
    assert len(said) == 1


# --- words --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in NETS if name not in ODD])
def test_a_model_travels_as_words_and_computes_the_same(name: str) -> None:
    model, rows, target = made(name)
    words = decode(encode(words_of(model)))
    there = made_of(words).double()
    with torch.no_grad():
        for theirs, ours in zip(there.parameters(), model.parameters(), strict=True):
            theirs.copy_(ours)
    np.testing.assert_array_equal(
        clipped_sum(there, rows, target, "cross_entropy", 0.5),
        clipped_sum(model, rows, target, "cross_entropy", 0.5),
    )
    assert words_of(there) == words


@pytest.mark.parametrize(
    "words",
    [
        ("leakyrelu", float("nan")), ("leakyrelu", 1e9), ("leakyrelu",), ("leakyrelu", "1"),
        ("elu", 1.0, True), ("hardtanh", 2.0, 1.0), ("gelu", "other"), ("softmax", 0),
        ("softmax", -2), ("softmax", 99), ("softmax", None), ("layernorm", 0.0, 3),
        ("layernorm", 1e-5), ("layernorm", 1e-5, *[2] * 9), ("layernorm", 1e-5, 1 << 13, 1 << 13),
        ("groupnorm", 2, 3, 1e-5), ("groupnorm", 1, 1 << 27, 1e-5), 
        ("conv1d", 1 << 13, 1 << 13, 1, 1, 0),
        ("conv1d", 2, 2, 65, 1, 0), ("conv1d", 2, 2, 3, 0, 0), ("conv", 2, 2, 3, 1, 0, 3),
        ("conv", 2, 2, 3, 1, 0, 1, 1), ("conv", 2, 2, 3, 1, -1), ("bare", "embedding", 3, 3),
        ("bare", "relu"), ("bare",), ("linear", True, 3), ("linear", 3.0, 3), ("prelu", 0),
        ("encoder", 4, 3, 6, "relu", False, 1e-5), ("encoder", 4, 2, 6, "tanh", False, 1e-5),
        ("encoder", 4, 2, 6, "relu", 1, 1e-5), ("encoder", 1 << 13, 2, 1, "relu", False, 1e-5),
        ("again", 0), ("again", -1), ("tied", 0, "linear", 3, 3), ("relu", "relu"), (), "relu", 3,
        (["relu"],), ("identity", 5), ("dropout", 0.5), ("maxpool", True),
    ],
    ids=str,
)  # fmt: skip
def test_words_that_are_none_make_no_layer(words: Any) -> None:
    with torch.device("meta"), pytest.raises(Refused, match="remote-refused"):
        made_of((words,))


@pytest.mark.parametrize("words", [("tied", 0, "linear", 4, 3), ("tied", 1, "linear", 3, 3)])
def test_weights_of_another_shape_or_of_none_are_not_shared(words: Any) -> None:
    with pytest.raises(Refused, match="one shape"):
        made_of((("linear", 3, 3), ("relu",), words))


def test_layers_whose_weights_were_not_sent_take_no_room() -> None:
    from sfumato.features.federated.training.training_site import SiteTask, _model

    wide = tuple(("linear", 1 << 12, 1 << 13) for _ in range(100))  # 13 gigabytes
    with pytest.raises(Refused, match="weights do not match"):
        _model(SiteTask(wide, "x", "y", "mse"), [])


class Odd(nn.Linear):
    def forward(self, *rows: Any) -> Any:
        return super().forward(rows[0] - rows[0].mean(0))


def hooked() -> Any:
    layer = nn.Linear(3, 3)
    layer.register_forward_hook(lambda *said: said[2] - said[2].mean(0))
    return layer


def halved() -> Any:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.bias = first.bias
    return nn.Sequential(first, second)


@pytest.mark.parametrize(
    ("layer", "instead"),
    [
        (lambda: nn.BatchNorm1d(3), "GroupNorm or LayerNorm"),
        (lambda: nn.SyncBatchNorm(3), "GroupNorm or LayerNorm"),
        (lambda: nn.InstanceNorm2d(3), "as many groups as channels"),
        (lambda: nn.Dropout(0.5), "Leave it out"),
        (lambda: nn.Dropout2d(0.5), "Leave it out"),
        (lambda: nn.LSTM(3, 3), "Conv1d"),
        (lambda: nn.GRU(3, 3), "Conv1d"),
        (lambda: nn.MultiheadAttention(4, 2), "TransformerEncoderLayer"),
        (lambda: nn.TransformerEncoderLayer(4, 2, batch_first=True), "dropout=0.0"),
        (lambda: encoder(batch_first=False), "batch_first=True"),
        (lambda: encoder(activation=nn.functional.silu), "relu or gelu"),
        (lambda: encoder(bias=False), "relu or gelu"),
        (lambda: nn.LayerNorm(3, elementwise_affine=False), "Keep its weights"),
        (lambda: nn.LayerNorm(3, eps=0), "eps"),
        (lambda: nn.GroupNorm(1, 3, affine=False), "Keep its weights"),
        (lambda: nn.Softmax(), "dim=-1"),
        (lambda: nn.Softmax(0), "dim=-1"),
        (lambda: nn.LogSoftmax(0), "dim=-1"),
        (lambda: nn.Conv1d(3, 3, 2, dilation=2), "no dilation"),
        (lambda: nn.Embedding(3, 3, scale_grad_by_freq=True), "a plain Embedding"),
        (lambda: nn.Bilinear(3, 3, 3), "docs/how-to/federated.md"),
        (lambda: Odd(3, 3), "docs/how-to/federated.md"),
        (hooked, "docs/how-to/federated.md"),
    ],
)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_a_layer_that_is_refused_says_what_to_do(layer: Any, instead: str) -> None:
    with pytest.raises(Refused, match="Sites cannot train") as seen:
        words_of(nn.Sequential(layer()))
    assert instead in seen.value.next_step


def test_two_layers_share_their_weights_and_nothing_less() -> None:
    with pytest.raises(Refused, match="share only their weights"):
        words_of(halved())


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.BatchNorm1d(4), lambda: nn.Dropout(0.1), lambda: encoder(dropout=0.1),
        lambda: nn.LayerNorm(4, eps=0), lambda: nn.Softmax(-2), lambda: nn.Softmax(dim=None),
        lambda: encoder(batch_first=False), lambda: nn.ReLU(inplace=True),
    ],
    ids=["batch norm", "dropout", "dropout within", "no eps", "rows shared out", "unsaid side",
         "rows second", "written over"],
)  # fmt: skip
def test_what_would_mix_rows_is_not_computed_either(layer: Any) -> None:
    """However it came there: words do not say such layers."""
    model = nn.Sequential(nn.Linear(4, 4), layer(), nn.Flatten(), nn.Linear(20, 3))
    with pytest.raises(Refused, match="remote-refused"):
        clipped_sum(model, torch.rand(5, 5, 4), torch.zeros(5), "cross_entropy", 1.0)


@pytest.mark.parametrize(("ins", "outs", "places"), [(40, 40, 2), (40, 40, 12), (3, 2, 30)])
def test_a_norm_is_never_less_than_the_exact_one(ins: int, outs: int, places: int) -> None:
    """Of numbers that nearly cancel, beside the same in fractions."""
    layer = nn.Linear(ins, outs).double()
    for seed in range(6):
        torch.manual_seed(seed)
        into = torch.randn(1, 1, ins) + torch.randn(1, places, ins) * 1e-9
        signs = torch.tensor([(-1.0) ** place for place in range(places)])
        back = torch.randn(1, 1, outs) * signs[None, :, None]
        into, back = into.double(), back.double()
        x, b = (
            np.array([[Fraction(v) for v in row] for row in one[0].tolist()])
            for one in (into, back)
        )
        exact = np.square(b.T @ x).sum() + np.square(b.sum(0)).sum()
        assert Fraction(float(squared_norms(layer, into, back))) >= exact


def test_no_square_is_too_small_for_a_double() -> None:
    """What came in was taken for nothing, and what came back was as large as a double tells."""
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)).double()
    with torch.no_grad():
        model[0].weight.fill_(1e-162)
        model[1].weight.fill_(0.0)
    target = torch.full((1, 1), -1e153, dtype=torch.float64)
    found = clipped_sum(model, torch.ones(1, 1), target, "mse", 1e-12)
    assert 0 < np.linalg.norm(found) <= 1e-12 * (1 + 1e-6)


@pytest.mark.parametrize("places", [1, 2, 30])
@pytest.mark.parametrize("sides", [1, 40])
def test_nor_are_squares_at_many_places(places: int, sides: int) -> None:
    into, back = (torch.full((1, places, sides), x, dtype=torch.float64) for x in (1e-162, 1e151))
    found = squared_norms(nn.Linear(sides, sides, bias=False).double(), into, back)
    assert float(found) >= (places * sides * 1e-11) ** 2


@pytest.mark.parametrize("clip", ["0", "1/" + "1" + "0" * 165, "1" + "0" * 165])
def test_a_clip_of_which_the_square_is_no_double_is_refused(clip: str) -> None:
    """At 1e-165 a row weighed as much as all of the site's people, for each of them."""
    with pytest.raises(Bug, match="1e-30"):
        PeopleGrid(Fraction(clip), 16, 1, 5)
