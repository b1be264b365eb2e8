"""The manage API's servers and hosts: list, read, decide. Views read the clock; services do the work."""

from __future__ import annotations

import uuid

from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from otp_service.core.clock import utc_now
from otp_service.web.openapi import manage_problems
from otp_service.web.pagination import page
from otp_service.web.query_parameters import query_parameters
from servers import outlook, recovery
from servers.api import item_lists, queries
from servers.api.serializers import (
    ActionSerializer,
    ChangedSerializer,
    HistoryPageSerializer,
    HistoryQuerySerializer,
    HistorySerializer,
    HostPageSerializer,
    HostQuerySerializer,
    HostSerializer,
    ServerDetailSerializer,
    ServerPageSerializer,
    ServerQuerySerializer,
    ServerSerializer,
)
from servers.api.view import MAX_BULK_BODY, ManageView, by, missing_is_404
from servers.memberships import Changed
from servers.recovery_rules import PersonVerdict
from servers.references import ItemFault, ItemsRefused

# Made once: a serializer that is used by `run_validation` alone keeps nothing of a request.
_ACTION, _SERVER_QUERY = ActionSerializer(), ServerQuerySerializer()
_HISTORY_QUERY, _HOST_QUERY = HistoryQuerySerializer(), HostQuerySerializer()
_EXAMPLES = [
    OpenApiExample(
        "Back into rotation",
        {"action": "recover", "servers": [{"region": "es", "unit": 228}], "reason": "signed in again, sends by hand"},
        request_only=True,
    )
]


class ServersView(ManageView):
    """All servers."""

    @extend_schema(
        operation_id="list_servers",
        summary="List servers",
        parameters=[ServerQuerySerializer],
        responses={200: ServerPageSerializer, **manage_problems(400)},
        tags=["servers"],
    )
    def get(self, request: Request) -> Response:
        """Lists the servers that all the filters match, newest first; deleted ones too, unless filtered out."""
        query = _SERVER_QUERY.run_validation(query_parameters(request))
        rows, next_cursor = page(queries.matching(query), cursor=query.get("cursor"), limit=query["limit"])
        return Response({"results": ServerSerializer(rows, many=True).data, "next_cursor": next_cursor})


class ServerView(ManageView):
    """One server."""

    @extend_schema(
        operation_id="get_server",
        summary="Read a server",
        responses={200: ServerDetailSerializer, **manage_problems(404)},
        tags=["servers"],
    )
    def get(self, request: Request, server_uuid: uuid.UUID) -> Response:
        """Says how a server is, why it may not send, and what happens next."""
        now = utc_now()
        with missing_is_404():
            server = queries.servers().get(uuid=server_uuid)
        context = {"outlook": outlook.of(server, now=now)}
        return Response(ServerDetailSerializer(server, context=context).data)


class HistoryView(ManageView):
    """What happened to one server."""

    @extend_schema(
        operation_id="list_history",
        summary="Read a server's history",
        parameters=[HistoryQuerySerializer],
        responses={200: HistoryPageSerializer, **manage_problems(400, 404)},
        tags=["servers"],
    )
    def get(self, request: Request, server_uuid: uuid.UUID) -> Response:
        """Lists what happened to a server, by EVENT code, newest first."""
        query = _HISTORY_QUERY.run_validation(query_parameters(request))
        with missing_is_404():
            found = queries.history_of(server_uuid, query.get("event"))
        rows, next_cursor = page(found, cursor=query.get("cursor"), limit=query["limit"])
        return Response({"results": HistorySerializer(rows, many=True).data, "next_cursor": next_cursor})


class ActionsView(ManageView):
    """A person's verdict on several servers."""

    max_body = MAX_BULK_BODY

    @extend_schema(
        operation_id="act_on_servers",
        summary="Recover, mark active, preheat, take out",
        request=ActionSerializer,
        responses={200: ChangedSerializer, **manage_problems(400, 413, 415)},
        examples=_EXAMPLES,
        tags=["servers"],
    )
    def post(self, request: Request) -> Response:
        """Carries out a verdict on every server named, or on none: those that refuse it are named with the reason."""
        action = _ACTION.run_validation(request.data)
        rows = item_lists.row_ids(action["servers"])
        ids, verdict = set(rows.values()), PersonVerdict(action["action"])
        try:
            done = recovery.carry_out(verdict, ids, now=utc_now(), by=by(request), reason=action["reason"])
        except recovery.VerdictRefused as refused:
            told = {refusal.server_id: refusal for refusal in refused.refusals}
            raise ItemsRefused(
                [ItemFault(n, "server", told[pk].code, told[pk].detail) for n, pk in rows.items() if pk in told]
            ) from None
        return Response(ChangedSerializer(Changed(servers=len(ids), changed=len(done.changed))).data)


class HostsView(ManageView):
    """All relay hosts."""

    @extend_schema(
        operation_id="list_hosts",
        summary="List relay hosts",
        parameters=[HostQuerySerializer],
        responses={200: HostPageSerializer, **manage_problems(400)},
        tags=["servers"],
    )
    def get(self, request: Request) -> Response:
        """Lists the relay hosts, newest first, without their secrets."""
        query = _HOST_QUERY.run_validation(query_parameters(request))
        rows, next_cursor = page(queries.hosts(utc_now()), cursor=query.get("cursor"), limit=query["limit"])
        return Response({"results": HostSerializer(rows, many=True).data, "next_cursor": next_cursor})
