"""multi-freq-ldpy as its examples show it: a list of every client's report, then an aggregator."""

from __future__ import annotations

from typing import Any

from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client
from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Aggregator_MI, LH_Client
from multi_freq_ldpy.pure_frequency_oracles.SS import SS_Aggregator_MI, SS_Client
from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client

from bench.peers import survey_script
from bench.peers.survey_script import EPSILON


def _k_ary(values: Any, size: int) -> Any:
    return GRR_Aggregator_MI([GRR_Client(v, size, EPSILON) for v in values], size, EPSILON)


def _unary(values: Any, size: int) -> Any:
    return UE_Aggregator_MI([UE_Client(v, size, EPSILON) for v in values], EPSILON)


def _hashing(values: Any, size: int) -> Any:
    return LH_Aggregator_MI([LH_Client(v, size, EPSILON) for v in values], size, EPSILON)


def _subset(values: Any, size: int) -> Any:
    return SS_Aggregator_MI([SS_Client(v, size, EPSILON) for v in values], size, EPSILON)


if __name__ == "__main__":
    survey_script.answer(
        "multi-freq-ldpy",
        {"k-ary": _k_ary, "unary": _unary, "hashing": _hashing, "subset": _subset},
    )
