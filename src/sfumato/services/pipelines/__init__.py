"""Strangers' programs on real data: handed in, approved, run on blocks of people."""

from sfumato.services.pipelines.pipelines import Asked, Pipelines, Unsplit
from sfumato.services.pipelines.rules import PipelineRules

__all__ = ["Asked", "PipelineRules", "Pipelines", "Unsplit"]
