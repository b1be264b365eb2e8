"""Which server carries which message. Pure: no Django, no clock, no draws."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol, TypeVar


class Wish(Protocol):
    """What a message asks of a server."""

    @property
    def key(self) -> Hashable: ...
    @property
    def pools(self) -> tuple[str, ...]: ...
    @property
    def recipient(self) -> str: ...
    @property
    def excluded_servers(self) -> AbstractSet[int]: ...
    @property
    def excluded_hosts(self) -> AbstractSet[int]: ...


class Candidate(Protocol):
    """A server that may send now."""

    @property
    def id(self) -> int: ...
    @property
    def host_id(self) -> int: ...
    @property
    def region(self) -> str: ...
    @property
    def handle(self) -> str: ...


C = TypeVar("C", bound=Candidate)


def fits(wish: Wish, server: Candidate) -> bool:
    """Whether the server may carry the message at all."""
    return server.region in wish.pools and server.id not in wish.excluded_servers and server.handle != wish.recipient


def assign(
    wishes: Sequence[Wish],
    candidates: Iterable[C],
    sticky: Mapping[Hashable, int],
    for_known_only: AbstractSet[int] = frozenset(),
) -> dict[Hashable, C]:
    """A server for each message, by the message's key; what nothing is left for is missing. No server twice.

    `candidates` come least recently used first, `sticky` names the server that delivered to a message's
    recipient before. Messages choose in their order: first all their sticky servers, then all servers of
    hosts that they have not tried, then any; each time through their pools by preference. Those of
    `for_known_only` are given as sticky servers or not at all.
    """
    free = {server.id: server for server in candidates}
    given = _give_sticky(wishes, free, sticky)
    free = {key: server for key, server in free.items() if key not in for_known_only}
    for other_hosts_only in (True, False):
        for wish in wishes:
            if wish.key not in given and (server := _first_fit(wish, free.values(), other_hosts_only)) is not None:
                given[wish.key] = free.pop(server.id)
    return given


def _give_sticky(wishes: Sequence[Wish], free: dict[int, C], sticky: Mapping[Hashable, int]) -> dict[Hashable, C]:
    given: dict[Hashable, C] = {}
    for wish in wishes:
        known = free.get(sticky[wish.key]) if wish.key in sticky else None
        if known is not None and fits(wish, known) and known.host_id not in wish.excluded_hosts:
            given[wish.key] = free.pop(known.id)
    return given


def _first_fit(wish: Wish, servers: Iterable[C], other_hosts_only: bool) -> C | None:
    best: tuple[int, C] | None = None
    for server in servers:
        if not fits(wish, server) or (other_hosts_only and server.host_id in wish.excluded_hosts):
            continue
        rank = wish.pools.index(server.region)
        if rank == 0:
            return server
        if best is None or rank < best[0]:
            best = (rank, server)
    return best[1] if best else None
