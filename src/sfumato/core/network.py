"""What of an address is one subscriber's."""

from __future__ import annotations

import ipaddress
from functools import lru_cache


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
