"""Every randomiser as docs/reference/local.md says it, with plain whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sfumato.dp.local.randomiser_registry import randomiser_of

WORD = 2**32
Given = dict[str, Any]  # parameters: whole numbers, but for the kind and the questions
Words = Sequence[int]


def among(word: int, outcomes: int) -> int:
    return word * outcomes // WORD


def among_64(high: int, low: int, outcomes: int) -> int:
    return (high * outcomes + low * outcomes // WORD) // WORD


def sized(number: int, most: int) -> bytes:
    return number.to_bytes(1 if most < 256 else 2 if most < 65_536 else 4, "little")


def binary(given: Given, value: int, w: Words) -> bytes:
    return bytes([w[0] < (given["yes"] if value else given["other"])])


def k_ary(given: Given, value: int, w: Words) -> bytes:
    said = value if w[0] < given["truth"] else among(w[1], given["size"])
    return sized(said, given["size"] - 1)


def waves(given: Given, value: int, w: Words) -> bytes:
    return k_ary({"size": given["size"], "truth": given["momentary"]}, value, w)


def unary(given: Given, value: int, w: Words) -> bytes:
    groups = -(-given["size"] // 32)
    out = b""
    for group in range(groups):
        bits = 0
        for plane in range(32):
            word = w[plane * groups + group]
            bits = bits | word if given["other"] >> plane & 1 else bits & word
        for bit in range(32):
            answer, mask = 32 * group + bit, 1 << bit
            if answer == value:
                bits = bits & ~mask | w[31 * groups + group] & mask
            if answer >= given["size"]:
                bits &= ~mask
        out += bits.to_bytes(4, "little")
    return out


def hadamard(given: Given, value: int, w: Words) -> bytes:
    place = among(w[1], given["rows"])
    row = value + 1
    if w[0] < given["truth"] and bin(place & row).count("1") % 2:
        place ^= row & -row
    return sized(place, given["rows"] - 1)


def hashing(given: Given, value: int, w: Words) -> bytes:
    cell = ((w[0] * value + w[1]) % WORD // 2**16) * given["cells"] // 2**16
    said = int(cell) if w[2] < given["truth"] else among(w[3], given["cells"])
    return w[0].to_bytes(4, "little") + w[1].to_bytes(4, "little") + bytes([said])


def subset(given: Given, value: int, w: Words) -> bytes:
    field = int(given["field"])
    times = 1 + among_64(w[0], w[1], field - 1)
    place: int = among(w[3], given["chosen"] if w[2] < given["truth"] else field)
    shift = (place - times * value) % field
    return times.to_bytes(2, "little") + shift.to_bytes(2, "little")


def projective(given: Given, value: int, w: Words) -> bytes:
    prime, dimension = int(given["prime"]), int(given["dimension"])
    points = (prime**dimension - 1) // (prime - 1)
    on_plane = (prime ** (dimension - 1) - 1) // (prime - 1)
    if w[0] >= given["truth"]:
        return sized(among_64(w[1], w[2], points), points - 1)
    answer = vector(value, prime, dimension)
    lead = answer.index(1)
    rest = vector(among_64(w[1], w[2], on_plane), prime, dimension - 1)
    found = [*rest[:lead], 0, *rest[lead:]]
    found[lead] = -sum(a * b for a, b in zip(found, answer, strict=True)) % prime
    first = next(number for number in found if number)
    normal = [n * int(pow(first, -1, prime)) % prime for n in found]
    return sized(number_of(normal, prime), points - 1)


def vector(number: int, prime: int, dimension: int) -> list[int]:
    for lead in range(dimension):
        free = dimension - lead - 1
        if number < prime**free:
            digits = [number // prime**place % prime for place in reversed(range(free))]
            return [0] * lead + [1, *digits]
        number -= prime**free
    raise AssertionError


def number_of(found: list[int], prime: int) -> int:
    lead = found.index(1)
    before = sum(int(prime ** (len(found) - place - 1)) for place in range(lead))
    rest = found[lead + 1 :]
    return before + sum(n * int(prime ** (len(rest) - i - 1)) for i, n in enumerate(rest))


def duchi(given: Given, value: int, w: Words) -> bytes:
    steps = given["steps"]
    end = 2 if value > steps else int(among_64(w[0], w[1], steps) < value)
    return bytes([end if w[2] < given["truth"] else among(w[3], 3)])


def piecewise(given: Given, value: int, w: Words) -> bytes:
    steps, window = int(given["steps"]), int(given["window"])
    places = steps + 2 * window
    start = steps + window if value > steps else value
    told = w[0] < given["truth"]
    return sized(start + among(w[1], window) if told else among(w[1], places), places - 1)


def hybrid(given: Given, value: int, w: Words) -> bytes:
    said = piecewise(given, value, w[1:])
    if w[0] < given["share"]:
        return b"\0" + said
    ends = {"steps": given["steps"], "truth": given["ends"]}
    return b"\1" + duchi(ends, value, w[1:]).ljust(len(said), b"\0")


def split(given: Given, values: Sequence[int], w: Words) -> bytes:
    out = b""
    for question in given["questions"]:
        value, values = taken(question, values)
        out += plain(question, value, w)
        w = w[words_of(question) :]
    return out


def sampled(given: Given, values: Sequence[int], w: Words) -> bytes:
    questions = given["questions"]
    which = among(w[0], len(questions))
    for question in questions[:which]:
        values = taken(question, values)[1]
    said = plain(questions[which], taken(questions[which], values)[0], w[1:])
    longest = max(width_of(question) for question in questions)
    return which.to_bytes(2, "little") + said.ljust(longest, b"\0")


def taken(question: Given, values: Sequence[int]) -> tuple[Any, Sequence[int]]:
    """The answers to a question, and those that are left for the others."""
    if "questions" not in question:
        return values[0], values[1:]
    count = arity(question)
    return values[:count], values[count:]


def arity(question: Given) -> int:
    return sum(map(arity, question["questions"])) if "questions" in question else 1


def words_of(question: Given) -> int:
    return randomiser_of(question).words_per_report


def width_of(question: Given) -> int:
    return randomiser_of(question).width


def plain(given: Given, value: Any, w: Words) -> bytes:
    return PLAIN[given["kind"]](given, value, w)


PLAIN: dict[str, Callable[[Given, Any, Words], bytes]] = {
    "binary": binary,
    "duchi": duchi,
    "hadamard": hadamard,
    "hashing": hashing,
    "hybrid": hybrid,
    "k-ary": k_ary,
    "piecewise": piecewise,
    "projective": projective,
    "sampled": sampled,
    "split": split,
    "subset": subset,
    "unary": unary,
    "waves": waves,
}
