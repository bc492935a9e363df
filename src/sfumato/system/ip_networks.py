"""Map IP addresses to networks: the network of one subscriber, and membership in networks."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@lru_cache(maxsize=256)  # cached: called per request, and most requests come from few addresses
def network_of(address_text: str) -> str:
    """Return the network of one subscriber: the IPv4 address itself, or its IPv6 /64 network.

    An IPv4 address that is mapped to IPv6 counts as IPv4. A text that is no address is returned,
    cut to 100 characters.
    """
    try:
        address = ipaddress.ip_address(address_text)
    except ValueError:
        return address_text[:100]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    mapped = address.ipv4_mapped
    return str(mapped or ipaddress.ip_network((int(address) >> 64 << 64, 64)))


def is_within(address_text: str, networks: Sequence[Network]) -> bool:
    """Say whether an IP address is a loopback address, or in one of these networks."""
    try:
        address = ipaddress.ip_address(address_text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback or any(address in one for one in networks)
