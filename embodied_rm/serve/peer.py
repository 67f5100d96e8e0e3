"""The machine that a request comes from: each has the same share, whatever names its clients choose.

Behind a proxy on this machine it is the address that the proxy appends to X-Forwarded-For. Behind any other proxy all
requests come from one machine, that of the proxy, and share by their client names only: they should trust each other.
FORWARDED_ALLOW_IPS, of uvicorn, names further proxies whose X-Forwarded-For is believed. gRPC has no such header.
"""

import ipaddress
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TypeVar
from urllib.parse import unquote

IPV6_PREFIX_BITS = 64  # of an IPv6 address that belong to one network: a machine may have all addresses of its own
PEER: ContextVar[str] = ContextVar("PEER", default="")
"""Peer of the request that the current task handles."""

K = TypeVar("K")


def http_peer(client: tuple[str, int] | None) -> str:
    """Return the peer of an ASGI scope's client, which a connection without an address lacks."""
    return _peer_of_address("" if client is None else client[0])


def grpc_peer(peer: str) -> str:
    """Return the peer of a gRPC context's peer, such as "ipv4:127.0.0.1:5000" or "ipv6:%5B::1%5D:5000"."""
    return _peer_of_address(unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]"))


def _peer_of_address(address: str) -> str:
    """Return the address, or the network of one of IPv6."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(parsed.ipv4_mapped or ipaddress.ip_network((int(parsed), IPV6_PREFIX_BITS), strict=False))
    return address


def largest_other(counts: Mapping[K, int], own: K, own_count: int) -> K | None:
    """Return the one with the largest count if that is more than `own_count`; None if it is `own` or nobody."""
    largest = max(counts, key=lambda name: counts[name], default=own)
    return None if largest == own or counts[largest] <= own_count else largest
