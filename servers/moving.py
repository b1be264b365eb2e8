"""When a server may be moved to another host or unit."""

from __future__ import annotations

from datetime import datetime, timedelta

from servers.models import Server
from servers.rules import Status

#: The columns that say where a server is.
WHERE_IT_IS = frozenset({"region", "unit", "host"})
#: Long enough for everything in flight to be reported or asked about.
QUIET_FOR = timedelta(hours=1)


def may_move(server: Server, *, now: datetime) -> bool:
    """Only out of rotation, and an hour after its last message.

    What is in flight is asked about at the server's host: a new host has never heard of it, says so truthfully, and a
    second copy would be sent.
    """
    in_rotation = server.status in {Status.ACTIVE, Status.NEW}
    return server.last_sent_at is None or (not in_rotation and server.last_sent_at < now - QUIET_FOR)
