"""The mechanisms: exact discrete noise, decided by integers alone, the tail included."""

from sfumato.core.noise import gaussian, geometric, laplace, selection

__all__ = ["gaussian", "geometric", "laplace", "selection"]
