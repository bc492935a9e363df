"""pure-ldp as its examples show it: a client and a server for each oracle, an answer at a time."""

from __future__ import annotations

import warnings
from typing import Any

from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer
from pure_ldp.frequency_oracles.hadamard_response import (
    HadamardResponseClient,
    HadamardResponseServer,
)
from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer
from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer

from bench.peers import survey_script
from bench.peers.survey_script import EPSILON


def _index(value: int) -> int:
    return value


def _survey(client: Any, server: Any, values: Any, size: int) -> list[float]:
    for value in values.tolist():
        server.aggregate(client.privatise(value))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [server.estimate(value, suppress_warnings=True) for value in range(size)]


def _k_ary(values: Any, size: int) -> list[float]:
    server = DEServer(EPSILON, size, index_mapper=_index)
    return _survey(DEClient(EPSILON, size, index_mapper=_index), server, values, size)


def _unary(values: Any, size: int) -> list[float]:
    client = UEClient(EPSILON, size, use_oue=True, index_mapper=_index)
    server = UEServer(EPSILON, size, use_oue=True, index_mapper=_index)
    return _survey(client, server, values, size)


def _hashing(values: Any, size: int) -> list[float]:
    client = LHClient(EPSILON, size, use_olh=True, index_mapper=_index)
    server = LHServer(EPSILON, size, use_olh=True, index_mapper=_index)
    return _survey(client, server, values, size)


def _hadamard(values: Any, size: int) -> list[float]:
    server = HadamardResponseServer(EPSILON, size, index_mapper=_index)
    hashes = server.get_hash_funcs()
    client = HadamardResponseClient(EPSILON, size, hashes, index_mapper=_index)
    return _survey(client, server, values, size)


if __name__ == "__main__":
    survey_script.answer(
        "pure-ldp",
        {"k-ary": _k_ary, "unary": _unary, "hashing": _hashing, "hadamard": _hadamard},
    )
