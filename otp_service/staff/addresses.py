"""Whose tries are counted together."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

_HOST_BITS = 64  # of an IPv6 address: whoever has one has all that share its first half


def client_address(remote: str, forwarded_for: str, *, behind_proxy: bool) -> str | None:
    """The address that a request is counted under: IPv4, or the first half of IPv6. None if there is none.

    Behind a proxy it is the last one in X-Forwarded-For, which the proxy added: what stands before it, anybody
    may have written. Without a proxy the header is a stranger's, and not read.
    """
    forwarded = forwarded_for.rpartition(",")[2] if behind_proxy else ""
    return _counted(forwarded) or _counted(remote)


def _counted(text: str) -> str | None:
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> _HOST_BITS << _HOST_BITS))
