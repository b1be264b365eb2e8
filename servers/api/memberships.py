"""The manage API's memberships: which servers are in which groups. Every call is carried out whole, or not at all."""

from __future__ import annotations

import uuid
from functools import partial
from typing import ClassVar

from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from otp_service.core.clock import utc_now
from otp_service.web.openapi import manage_problems
from otp_service.web.pagination import page
from otp_service.web.query_parameters import query_parameters
from servers import memberships
from servers.api import item_lists, queries
from servers.api.item_lists import AllServersSerializer, AssignmentsSerializer, SomeServersSerializer
from servers.api.serializers import (
    ChangedSerializer,
    ServerNamePageSerializer,
    ServerNameSerializer,
    ServersOfGroupQuerySerializer,
)
from servers.api.view import MAX_BULK_BODY, ManageView, by, missing_is_404
from servers.memberships import Changed, How

_ASSIGNMENTS, _SOME, _ALL = AssignmentsSerializer(), SomeServersSerializer(), AllServersSerializer()
_QUERY = ServersOfGroupQuerySerializer()
_UUID = "3f0b4a52-6f6a-4c53-8d6e-1f2f3a4b5c6d"
_ASSIGNMENT_EXAMPLES = [
    OpenApiExample(
        "Two servers",
        {"items": [{"server": {"region": "es", "unit": 228}, "groups": [_UUID]}, {"uuid": _UUID, "groups": []}]},
        request_only=True,
    )
]
_SERVER_EXAMPLES = [
    OpenApiExample("Two servers", {"servers": [{"region": "es", "unit": 228}, _UUID]}, request_only=True)
]
_assignments_schema = partial(
    extend_schema,
    request=AssignmentsSerializer,
    responses={200: ChangedSerializer, **manage_problems(400, 413, 415)},
    examples=_ASSIGNMENT_EXAMPLES,
    tags=["groups"],
)
_servers_schema = partial(
    extend_schema,
    responses={200: ChangedSerializer, **manage_problems(400, 404, 413, 415)},
    examples=_SERVER_EXAMPLES,
    tags=["groups"],
)


class _AssignmentsView(ManageView):
    max_body = MAX_BULK_BODY
    how: ClassVar[How]

    def _assign(self, request: Request) -> Response:
        listed = _ASSIGNMENTS.run_validation(request.data)["items"]
        items = item_lists.assignments(listed)
        return _told(memberships.assign(items, self.how, now=utc_now(), by=by(request)))


class SetAssignmentsView(_AssignmentsView):
    """The groups of several servers."""

    how = How.SET

    @_assignments_schema(operation_id="set_assignments", summary="Set the groups of servers")
    def post(self, request: Request) -> Response:
        """Each server named is in its groups after this, and in no others; servers that are not named stay."""
        return self._assign(request)


class AddAssignmentsView(_AssignmentsView):
    """More groups for several servers."""

    how = How.ADD

    @_assignments_schema(operation_id="add_assignments", summary="Add groups to servers")
    def post(self, request: Request) -> Response:
        """Each server named is in its groups after this, and in those that it was in before."""
        return self._assign(request)


class RemoveAssignmentsView(_AssignmentsView):
    """Fewer groups for several servers."""

    how = How.REMOVE

    @_assignments_schema(operation_id="remove_assignments", summary="Take groups from servers")
    def post(self, request: Request) -> Response:
        """Each server named is in none of its groups after this."""
        return self._assign(request)


class _ServersOfGroupView(ManageView):
    max_body = MAX_BULK_BODY
    how: ClassVar[How]
    body: ClassVar[SomeServersSerializer | AllServersSerializer] = _SOME

    def _assign(self, request: Request, group_uuid: uuid.UUID) -> Response:
        listed = self.body.run_validation(request.data)["servers"]
        named = item_lists.servers(listed)
        with missing_is_404():
            return _told(memberships.assign_servers(group_uuid, named, self.how, now=utc_now(), by=by(request)))


class ServersOfGroupView(_ServersOfGroupView):
    """The servers of one group."""

    how = How.SET
    body = _ALL

    @extend_schema(
        operation_id="list_servers_of_group",
        summary="List a group's servers",
        parameters=[ServersOfGroupQuerySerializer],
        responses={200: ServerNamePageSerializer, **manage_problems(400, 404)},
        tags=["groups"],
    )
    def get(self, request: Request, group_uuid: uuid.UUID) -> Response:
        """Lists the servers of a group, newest first."""
        query = _QUERY.run_validation(query_parameters(request))
        with missing_is_404():
            members = queries.servers_of(group_uuid)
        rows, next_cursor = page(members, cursor=query.get("cursor"), limit=query["limit"])
        return Response({"results": ServerNameSerializer(rows, many=True).data, "next_cursor": next_cursor})

    @_servers_schema(operation_id="set_servers_of_group", summary="Set a group's servers", request=AllServersSerializer)
    def post(self, request: Request, group_uuid: uuid.UUID) -> Response:
        """The group has these servers after this, and no others. Larger groups: `add/` and `remove/`, in pages."""
        return self._assign(request, group_uuid)


class AddServersToGroupView(_ServersOfGroupView):
    """More servers for one group."""

    how = How.ADD

    @_servers_schema(
        operation_id="add_servers_to_group", summary="Add servers to a group", request=SomeServersSerializer
    )
    def post(self, request: Request, group_uuid: uuid.UUID) -> Response:
        """The group has these servers after this, and those that it had before."""
        return self._assign(request, group_uuid)


class RemoveServersFromGroupView(_ServersOfGroupView):
    """Fewer servers for one group."""

    how = How.REMOVE

    @_servers_schema(
        operation_id="remove_servers_from_group", summary="Take servers out of a group", request=SomeServersSerializer
    )
    def post(self, request: Request, group_uuid: uuid.UUID) -> Response:
        """The group has none of these servers after this."""
        return self._assign(request, group_uuid)


def _told(changed: Changed) -> Response:
    return Response(ChangedSerializer(changed).data)
