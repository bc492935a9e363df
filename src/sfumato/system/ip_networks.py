"""What of an address is one subscriber's."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@lru_cache(maxsize=256)  # of every request, and few places send most of them
def network_of(place: str) -> str:
    """Return what one subscriber has: an IPv4 address, or the 2^64 addresses of an IPv6 network."""
    try:
        address = ipaddress.ip_address(place)
    except ValueError:
        return place[:100]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    mapped = address.ipv4_mapped
    return str(mapped or ipaddress.ip_network((int(address) >> 64 << 64, 64)))


def is_within(place: str, networks: Sequence[Network]) -> bool:
    """Say whether an address is this machine's loopback or in one of these networks."""
    try:
        address = ipaddress.ip_address(place)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback or any(address in one for one in networks)
