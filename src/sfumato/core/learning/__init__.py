"""Learning from rows that stay: what sites are to learn, and exact arithmetic to learn it with."""

from sfumato.core.learning.coins import Coins
from sfumato.core.learning.front import Front, read_front
from sfumato.core.learning.lesson import Lesson, read_lesson
from sfumato.core.learning.network import Network, People, Walk, Weights, unpacked
from sfumato.core.learning.order import Field, LearnEngine, LearnOrder

__all__ = [
    "Coins",
    "Field",
    "Front",
    "LearnEngine",
    "LearnOrder",
    "Lesson",
    "Network",
    "People",
    "Walk",
    "Weights",
    "read_front",
    "read_lesson",
    "unpacked",
]
