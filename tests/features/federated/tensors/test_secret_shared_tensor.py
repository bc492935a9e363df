"""Numbers split among workers: right in the sum, noise at each, and refused before they wrap."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

torch = pytest.importorskip("torch", reason="torch is not installed: make .venv/torch.done")

from sfumato.dp.refusal import Refused  # noqa: E402
from sfumato.features.federated import VirtualWorker, tensor  # noqa: E402
from sfumato.features.federated.tensors import secret_shared_tensor  # noqa: E402
from sfumato.features.federated.tensors.secret_shared_tensor import FixedTensor  # noqa: E402
from support.seeded_dice import SeededDice  # noqa: E402
from support.tensor_workers import Make  # noqa: E402

ALARM = 1e-5
X, Y = [[3, -4], [0, 7]], [[-1, 2], [5, 6]]
LARGEST = (1 << 63) - 1


def three() -> tuple[VirtualWorker, ...]:
    return tuple(VirtualWorker(id=name) for name in ("bob", "alice", "carol"))


SAME: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "difference": operator.sub,
    "product": operator.mul,
    "matrices": lambda x, y: x.mm(y),
    "row times matrix": lambda x, y: x @ y,
    "whole factor": lambda x, y: 3 * x + y * -2,
    "public number": lambda x, y: 5 - x + 2 + y - 1,
    "negative": lambda x, y: -x - y,
    "total": lambda x, y: (x * y).sum(),
    "two products": lambda x, y: x * y * x,
}


@pytest.mark.parametrize("name", SAME)
def test_what_is_computed_on_parts_is_what_the_numbers_give(name: str) -> None:
    x, y = torch.tensor(X), torch.tensor(Y)
    workers = three()
    there = [tensor(one).share(*workers, crypto_provider=None) for one in (X, Y)]
    found = SAME[name](*there).get()
    assert (found == SAME[name](x, y)).all()
    assert found.dtype == torch.int64


ANEW: dict[str, Callable[[Any], Any]] = {
    "public number": lambda x: x + 5,
    "builtin sum": lambda x: sum([x]),
    "difference": lambda x: 5 - x,
    "factor": lambda x: x * 1,
    "itself": lambda x: x + x,
}


@pytest.mark.parametrize("name", ANEW)
def test_what_is_computed_is_another_that_can_be_brought_back_alone(name: str) -> None:
    x = tensor([1, 2]).share(*three())
    made = ANEW[name](x)
    made.get()
    assert x.get().tolist() == [1, 2]


def test_parts_lie_at_workers_also_at_real_sites(worker: Make) -> None:
    bob, alice = worker("bob"), worker("alice")
    x = tensor([1, 2, 3]).share(bob, alice)
    assert x.location == (bob, alice)
    assert set(x.child) == {"bob", "alice"}
    assert (bob.objects_count(), alice.objects_count()) == (1, 1)
    assert repr(x) == "[shared tensor (3,) | bob, alice]"
    assert (x * x).get().tolist() == [1, 4, 9]
    assert x.get().tolist() == [1, 2, 3]
    assert (bob.objects_count(), alice.objects_count()) == (0, 0)


@pytest.mark.parametrize("left_out", range(3))
def test_all_parts_but_one_are_uniform_numbers_of_64_bits(
    left_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever two of three put together: their own parts, sums and differences of them."""
    monkeypatch.setattr(secret_shared_tensor, "_DICE", SeededDice(7))
    many = 1 << 14
    parts = tensor([5] * many).share(*three()).parts
    held = [part.get().numpy() for place, part in enumerate(parts) if place != left_out]
    for seen in (*held, held[0] + held[1], held[0] - held[1]):
        for byte in np.ascontiguousarray(seen).view(np.uint8).reshape(many, 8).T:
            counts = np.bincount(byte, minlength=256)
            assert stats.chisquare(counts).pvalue > ALARM


def test_what_a_product_opens_is_masked_by_numbers_of_64_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(secret_shared_tensor, "_DICE", SeededDice(8))
    opened: list[Any] = []
    masked = secret_shared_tensor._masked

    def listening(*of: Any) -> Any:
        opened.append(masked(*of))
        return opened[-1]

    monkeypatch.setattr(secret_shared_tensor, "_masked", listening)
    many = 1 << 14
    workers = three()
    x, y = (tensor([number] * many).share(*workers) for number in (3, 4))
    assert (x * y).get().tolist() == [12] * many
    assert len(opened) == 2
    for seen in opened:
        for byte in seen.numpy().view(np.uint8).reshape(many, 8).T:
            assert stats.chisquare(np.bincount(byte, minlength=256)).pvalue > ALARM


def test_it_is_drawn_anew_each_time() -> None:
    workers = three()
    parts = [tensor([1]).share(*workers).parts[0].get().tolist() for _ in range(2)]
    assert parts[0] != parts[1]


@pytest.mark.parametrize("edge", [LARGEST, -LARGEST, 0])
def test_the_largest_numbers_come_back(edge: int) -> None:
    assert tensor([edge, 1]).share(*three()).get().tolist() == [edge, 1]


def test_nothing_is_shared_in_no_numbers() -> None:
    assert tensor([], dtype=torch.int64).share(*three()).get().tolist() == []


HALF = 1 << 62
WRAPS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "difference": operator.sub,
    "product": operator.mul,
    "matrices": lambda x, y: x.mm(y),
    "whole factor": lambda x, y: x * 2,
    "public number": lambda x, y: x + HALF,
    "total": lambda x, y: x.sum(),
}


@pytest.mark.parametrize("name", WRAPS)
def test_what_could_wrap_around_is_refused(name: str) -> None:
    workers = three()
    x, y = (tensor([[HALF, 0], [0, 0]]).share(*workers) for _ in range(2))
    with pytest.raises(Refused, match=r"remote-refused.*2\^63"):
        WRAPS[name](x, y)


def test_a_sum_of_products_has_to_fit_and_not_each_product_alone() -> None:
    x = tensor([[1 << 31, 1 << 31], [0, 0]]).share(*three()[:2])
    assert (x * x).get()[0].tolist() == [HALF, HALF]
    with pytest.raises(Refused, match=r"remote-refused.*2\^63"):
        x.mm(x)


@pytest.mark.parametrize("places", [0, 3, 6])
def test_fixed_precision_is_shared_and_comes_back_with_its_point(places: int) -> None:
    x = tensor([0.5, -1.25, 3.0625]).fix_precision(precision_fractional=places)
    assert x.child.tolist() == [round(v * 10**places) for v in (0.5, -1.25, 3.0625)]
    workers = three()
    there = x.share(*workers)
    for found, factor in ((there + there, 2), (there * 3, 3), (there - there + 1, 0)):
        said = found.get().float_prec()
        wanted = x.float_prec() * factor + (factor == 0)
        assert torch.allclose(said, wanted)
    squared = x.share(*workers) * x.share(*workers)
    assert squared.places == 2 * places
    assert torch.allclose(squared.get().float_precision(), x.float_precision() ** 2)


def test_fixed_numbers_are_added_here_too() -> None:
    x = tensor([0.1, 0.2, 0.3]).fix_prec()
    assert (x + x).float_prec().tolist() == pytest.approx([0.2, 0.4, 0.6])
    assert (x - x * 2).float_precision().tolist() == pytest.approx([-0.1, -0.2, -0.3])
    assert repr(x) == "(fixed, 3 places)>tensor([100, 200, 300])"
    assert x.child.child.tolist() == [100, 200, 300]


@pytest.mark.parametrize("places", [0, 2])
def test_whole_numbers_are_fixed_as_they_are(places: int) -> None:
    odd = (1 << 53) + 1  # of which no double is
    fixed = tensor([odd, -odd]).fix_precision(precision_fractional=places)
    assert fixed.child.tolist() == [odd * 10**places, -odd * 10**places]
    with pytest.raises(Refused, match=r"remote-refused.*2\^63"):
        tensor([LARGEST // 10 + 1]).fix_precision(precision_fractional=1)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 1e30])
def test_what_is_no_number_or_too_large_has_no_fixed_precision(wrong: float) -> None:
    with pytest.raises(Refused, match="remote-refused"):
        tensor([1.0, wrong]).fix_precision()


def _bob_twice(x: Any, bob: Any, _: Any) -> object:
    return x.share(bob, bob)


REFUSED: dict[str, Callable[[Any, Any, Any], object]] = {
    "floats": lambda x, bob, alice: tensor([0.5]).share(bob, alice),
    "one worker": lambda x, bob, alice: x.share(bob),
    "a worker twice": _bob_twice,
    "other workers": lambda x, bob, alice: x.share(bob, alice) + x.share(alice, bob),
    "product elsewhere": lambda x, bob, alice: x.share(bob, alice) * x.share(alice, bob),
    "other places": lambda x, bob, alice: x.fix_prec().share(bob, alice) + x.share(bob, alice),
    "float factor": lambda x, bob, alice: x.share(bob, alice) * 0.5,
    "float added": lambda x, bob, alice: x.share(bob, alice) + 0.5,
    "compared": lambda x, bob, alice: x.share(bob, alice) == x.share(bob, alice),
    "greater": lambda x, bob, alice: x.share(bob, alice) > 1,
    "divided": lambda x, bob, alice: x.share(bob, alice) / 2,
    "branch": lambda x, bob, alice: 1 if x.share(bob, alice) else 0,
    "vectors as matrices": lambda x, bob, alice: x.share(bob, alice) @ x.share(bob, alice),
    "too precise": lambda x, bob, alice: x.fix_precision(precision_fractional=16),
    "a pointer": lambda x, bob, alice: x.send(bob).fix_precision(),
    "a pointer shared": lambda x, bob, alice: x.send(bob).share(bob, alice),
    "in place": lambda x, bob, alice: x.share_(bob, alice),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_done_with_shares_is_refused(name: str) -> None:
    bob, alice, _ = three()
    with pytest.raises(Refused, match="remote-refused"):
        REFUSED[name](tensor([1, 2]), bob, alice)


def test_what_a_site_owns_is_not_shared_either() -> None:
    """A part of a table's sum would be the site's; a sum without noise has a card's line for it."""
    clinic = VirtualWorker(id="clinic", tables={"ages": torch.tensor([[41], [58]])})
    bob, alice, _ = three()
    with pytest.raises(Refused, match="remote-refused"):
        clinic.table("ages").sum().share(bob, alice)
    x = tensor([1]).share(clinic, bob)
    clinic.table("ages").sum()
    with pytest.raises(Refused, match="remote-private"):
        (x + x).get()


ODD = st.decimals(-1000, 1000, places=4).map(float) | st.integers(-1000, 1000)
# what is written on either side of a number, and what stays exact
BESIDE: dict[str, Callable[[Any, Any], Any]] = {
    "added": lambda x, n: x + n,
    "to a number": lambda x, n: n + x,
    "taken away": lambda x, n: x - n,
    "from a number": lambda x, n: n - x,
    "times": lambda x, n: x * n,
    "times a number": lambda x, n: n * x,
    "negative": lambda x, n: -x + n - +x,
    "all at once": lambda x, n: (x * n - 1) * 2 + n - x,
    "total": lambda x, n: (x * n).sum() + n,
}


def exactly(of: FixedTensor) -> list[Fraction]:
    return [Fraction(int(whole), 10**of.places) for whole in of.child.reshape(-1)]


@pytest.mark.parametrize("is_shared", [False, True], ids=["here", "shared"])
@pytest.mark.parametrize("name", BESIDE)
@settings(max_examples=8, deadline=None)
@given(number=ODD)
def test_numbers_on_either_side_give_what_fractions_give(
    name: str, is_shared: bool, number: float
) -> None:
    fixed = tensor([0.5, -1.25, 3.125]).fix_precision()
    ours = BESIDE[name](fixed.share(*three()) if is_shared else fixed, number)
    held = np.array([Fraction(1, 2), Fraction(-5, 4), Fraction(25, 8)])
    wanted = BESIDE[name](held, Fraction(repr(number)))
    assert exactly(ours.get() if is_shared else ours) == list(np.atleast_1d(wanted))


def test_fixed_numbers_of_several_places_meet_as_they_are() -> None:
    x = tensor([0.5, -1.25]).fix_precision()
    y = tensor([2.5, 4.0]).fix_precision(precision_fractional=1)
    assert (x + y).float_precision().tolist() == [3.0, 2.75]
    assert (y - x).float_precision().tolist() == [2.0, 5.25]
    assert ((x * y).places, (x * y).float_precision().tolist()) == (4, [1.25, -5.0])
    workers = three()
    there = [one.share(*workers) for one in (x, y)]
    assert (there[0] + there[1]).get().float_precision().tolist() == [3.0, 2.75]
    assert (there[1] - there[0]).get().float_precision().tolist() == [2.0, 5.25]


UNDONE: dict[str, Callable[[Any], object]] = {
    "compared": lambda x: x < 1,
    "equal": lambda x: x == x,
    "divided": lambda x: x / 2,
    "divides": lambda x: 2 / x,
    "whole part": lambda x: 7 // x,
    "rest": lambda x: x % 2,
    "both": lambda x: divmod(x, 2),
    "power": lambda x: x**2,
    "of a power": lambda x: 2**x,
    "bits": lambda x: x & 1,
    "shifted": lambda x: 1 << x,
    "upside down": lambda x: ~x,
    "size of it": abs,
    "rounded": round,
    "whole": int,
    "float": float,
    "place": lambda x: [1, 2][x],
    "length": len,
    "loop": list,
    "index": lambda x: x[0],
    "within": lambda x: 1 in x,
    "mean": lambda x: x.mean(),
    "list": lambda x: x.tolist(),
    "of PyTorch": lambda x: torch.sum(x),
    "by PyTorch": lambda x: torch.tensor([1, 2]) + x,
    "a tensor": lambda x: x + torch.tensor([1, 2]),
    "a tensor that can be sent": lambda x: x * tensor([0.5, 1.0]),
    "a word": lambda x: x + "1",
    "nothing": lambda x: x - None,
    "from nothing": lambda x: None - x,
    "yes": lambda x: x * True,
    "no number": lambda x: x + float("nan"),
    "without end": lambda x: x * float("inf"),
    "too much": lambda x: x * 1e30,
    "too fine": lambda x: x + 1e-30,
    "too large": lambda x: x + 1e300,
}


@pytest.mark.parametrize("name", UNDONE)
@pytest.mark.parametrize("kind", ["fixed", "fixed and shared", "shared"])
def test_no_operator_ends_in_an_error_of_python(kind: str, name: str) -> None:
    x = tensor([0.0, -1.0]).fix_precision()
    held = {
        "fixed": lambda: x,
        "fixed and shared": lambda: x.share(*three()),
        "shared": lambda: tensor([2, 3]).share(*three()),
    }[kind]()
    with pytest.raises(Refused, match="remote-refused"):
        UNDONE[name](held)


def test_numbers_here_and_shared_ones_do_not_meet() -> None:
    x = tensor([1.0, 2.0]).fix_precision()
    there = x.share(*three())
    for how in (operator.add, operator.sub, operator.mul):
        for one, two in ((x, there), (there, x)):
            with pytest.raises(Refused, match="share both"):
                how(one, two)


def test_a_name_that_no_tensor_has_is_an_error_as_of_any_object() -> None:
    x = tensor([1.0]).fix_precision()
    for held in (x, x.share(*three())):
        with pytest.raises(AttributeError, match="no attribute 'meen'"):
            held.meen  # noqa: B018
        assert not hasattr(held, "meen")
