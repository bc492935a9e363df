"""Strangers' programs on real data: handed in, approved, run on blocks of people."""

from sfumato.services.pipelines.pipelines import Asked, Pipelines, Unsplit

__all__ = ["Asked", "Pipelines", "Unsplit"]
