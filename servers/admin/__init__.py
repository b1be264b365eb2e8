"""Hosts, groups, servers and their history for people. Each has a module; Django finds them by this one."""

from servers.admin.groups import GroupAdmin
from servers.admin.history import InternalSendAdmin, ServerStatusHistoryAdmin, StormBrakeAdmin
from servers.admin.hosts import HostAdmin
from servers.admin.servers import ServerAdmin

__all__ = [
    "GroupAdmin",
    "HostAdmin",
    "InternalSendAdmin",
    "ServerAdmin",
    "ServerStatusHistoryAdmin",
    "StormBrakeAdmin",
]
