"""Addresses of the manage API."""

from __future__ import annotations

from django.urls import path

from otp_service.web.converters import ANY_CASE_UUID
from servers.api import groups, memberships, servers

_GROUP = f"groups/<{ANY_CASE_UUID}:group_uuid>/"
_SERVER = f"<{ANY_CASE_UUID}:server_uuid>/"

urlpatterns = [
    path("groups/", groups.GroupsView.as_view(), name="manage-groups"),
    path("groups/assignments/", memberships.SetAssignmentsView.as_view(), name="manage-set-assignments"),
    path("groups/assignments/add/", memberships.AddAssignmentsView.as_view(), name="manage-add-assignments"),
    path("groups/assignments/remove/", memberships.RemoveAssignmentsView.as_view(), name="manage-remove-assignments"),
    path(_GROUP, groups.GroupView.as_view(), name="manage-group"),
    path(f"{_GROUP}servers/", memberships.ServersOfGroupView.as_view(), name="manage-group-servers"),
    path(f"{_GROUP}servers/add/", memberships.AddServersToGroupView.as_view(), name="manage-group-add"),
    path(f"{_GROUP}servers/remove/", memberships.RemoveServersFromGroupView.as_view(), name="manage-group-remove"),
    path("list/", servers.ServersView.as_view(), name="manage-servers"),
    path("actions/", servers.ActionsView.as_view(), name="manage-actions"),
    path("hosts/", servers.HostsView.as_view(), name="manage-hosts"),
    path(_SERVER, servers.ServerView.as_view(), name="manage-server"),
    path(f"{_SERVER}history/", servers.HistoryView.as_view(), name="manage-history"),
]
