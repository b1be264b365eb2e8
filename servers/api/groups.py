"""The manage API's groups: list, make, read, change, delete. Views read the clock; services do the work."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from otp_service.core.clock import utc_now
from otp_service.web.openapi import manage_problems
from otp_service.web.pagination import page
from otp_service.web.query_parameters import query_parameters
from servers import groups
from servers.api import queries
from servers.api.serializers import (
    DeleteGroupQuerySerializer,
    GroupPageSerializer,
    GroupParametersSerializer,
    GroupQuerySerializer,
    GroupSerializer,
    NewGroupSerializer,
)
from servers.api.view import ManageView, by, missing_is_404
from servers.models import Group

# Made once: a serializer that is used by `run_validation` alone keeps nothing of a request.
_NEW_GROUP, _CHANGE = NewGroupSerializer(), GroupParametersSerializer()
_GROUP_QUERY, _DELETE_QUERY = GroupQuerySerializer(), DeleteGroupQuerySerializer()

_LOCATION = OpenApiParameter("Location", OpenApiTypes.STR, OpenApiParameter.HEADER, response=[201])
_EXAMPLES = [
    OpenApiExample(
        "Nights",
        {
            "name": "night",
            "priority": 20,
            "failed_in_row": 3,
            "cooldown_delay_from": 120,
            "cooldown_delay_to": 240,
            "from_time": "22:00",
            "to_time": "08:00",
        },
        request_only=True,
    ),
    OpenApiExample("The least", {"name": "default", "priority": 0}, request_only=True),
]


class GroupsView(ManageView):
    """All groups."""

    @extend_schema(
        operation_id="list_groups",
        summary="List groups",
        parameters=[GroupQuerySerializer],
        responses={200: GroupPageSerializer, **manage_problems(400)},
        tags=["groups"],
    )
    def get(self, request: Request) -> Response:
        """Lists the groups, newest first."""
        query = _GROUP_QUERY.run_validation(query_parameters(request))
        rows, next_cursor = page(queries.groups(), cursor=query.get("cursor"), limit=query["limit"])
        return Response({"results": _told(rows, utc_now()), "next_cursor": next_cursor})

    @extend_schema(
        operation_id="make_group",
        summary="Make a group",
        request=NewGroupSerializer,
        responses={201: GroupSerializer, **manage_problems(400, 409, 413, 415)},
        parameters=[_LOCATION],
        examples=_EXAMPLES,
        tags=["groups"],
    )
    def post(self, request: Request) -> Response:
        """Makes a group without servers. A name or a priority that another group has is refused with 409."""
        now = utc_now()
        made = groups.create_group(_NEW_GROUP.run_validation(request.data), now=now, by=by(request))
        headers = {"Location": reverse("manage-group", args=[made.uuid])}
        made.server_count = 0  # type: ignore[attr-defined]  # as `queries.groups` has it
        return Response(_told([made], now)[0], status=201, headers=headers)


class GroupView(ManageView):
    """One group."""

    @extend_schema(
        operation_id="get_group",
        summary="Read a group",
        responses={200: GroupSerializer, **manage_problems(404)},
        tags=["groups"],
    )
    def get(self, request: Request, group_uuid: uuid.UUID) -> Response:
        """Says what a group is, and whether it is in force now."""
        with missing_is_404():
            return Response(_told_one(group_uuid, utc_now()))

    @extend_schema(
        operation_id="change_group",
        summary="Change a group",
        request=GroupParametersSerializer,
        responses={200: GroupSerializer, **manage_problems(400, 404, 409, 413, 415)},
        tags=["groups"],
    )
    def patch(self, request: Request, group_uuid: uuid.UUID) -> Response:
        """Changes any of the parameters; all of them together must be right. Cooldowns that run go on as they are."""
        now, values = utc_now(), _CHANGE.run_validation(request.data)
        with missing_is_404():
            groups.change_group(group_uuid, values, now=now, by=by(request))
            return Response(_told_one(group_uuid, now))

    @extend_schema(
        operation_id="delete_group",
        summary="Delete a group",
        parameters=[DeleteGroupQuerySerializer],
        responses={204: None, **manage_problems(400, 404, 409)},
        tags=["groups"],
    )
    def delete(self, request: Request, group_uuid: uuid.UUID) -> Response:
        """Takes the group's servers out of it, and deletes it; with `strict=1` only a group without servers."""
        strict = "strict" in _DELETE_QUERY.run_validation(query_parameters(request))
        with missing_is_404():
            groups.delete_group(group_uuid, now=utc_now(), by=by(request), strict=strict)
        return Response(status=204)


def _told_one(group_uuid: uuid.UUID, now: datetime) -> Any:
    return _told([queries.groups().get(uuid=group_uuid)], now)[0]


def _told(rows: Sequence[Group], now: datetime) -> Any:
    return GroupSerializer(rows, many=True, context={"now": now, "default": groups.default_policy()}).data
