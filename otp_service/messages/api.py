"""The client API: post a message, follow it, withdraw it. Views read the clock; services do the work."""

from __future__ import annotations

import uuid

from django.http import Http404
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from otp_service.core.clock import utc_now
from otp_service.messages import explanation, intake, lifecycle, queries
from otp_service.messages.api_keys import Scope
from otp_service.messages.authentication import ApiKeyAuthentication
from otp_service.messages.models import Message
from otp_service.messages.serializers import (
    AcceptedSerializer,
    ExplanationSerializer,
    MessageDetailSerializer,
    MessagePageSerializer,
    MessageQuerySerializer,
    MessageSerializer,
    NewMessageSerializer,
)
from otp_service.web.authentication import caller
from otp_service.web.negotiation import AlwaysJSON
from otp_service.web.openapi import problems
from otp_service.web.pagination import page
from otp_service.web.permissions import HasScope
from otp_service.web.query_parameters import query_parameters

MAX_IDEMPOTENCY_KEY = 255
REPLAYED_HEADER = "Idempotent-Replayed"

# Made once: a serializer that is used by `run_validation` alone keeps nothing of a request.
_NEW_MESSAGE = NewMessageSerializer()
_MESSAGE_QUERY = MessageQuerySerializer()

_IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": MAX_IDEMPOTENCY_KEY, "pattern": "^[ -~]*$"},
    OpenApiParameter.HEADER,
    description=(
        f"Recommended: 1 to {MAX_IDEMPOTENCY_KEY} printable ASCII characters of your own. The same key with the same "
        "body is answered as before and sends nothing again; with another body it is refused with 422. Kept for 48 "
        "hours at least."
    ),
)
_REPLAYED = OpenApiParameter(
    REPLAYED_HEADER,
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    response=[202],
    enum=["true"],
    description="The key was answered so before; nothing was sent now.",
)
_LOCATION = OpenApiParameter("Location", OpenApiTypes.STR, OpenApiParameter.HEADER, response=[202])
_EXAMPLES = [
    OpenApiExample(
        "A one-time code",
        {
            "to": "+34600000000",
            "text": "Your code is 123456",
            "lane": "otp",
            "ttl_s": 300,
            "channels": ["imessage", "sms"],
            "reference": "login-42",
        },
        request_only=True,
    ),
    OpenApiExample(
        "A code that may go every way",
        {
            "to": "+34600000000",
            "text": "Your code is 123456",
            "lane": "otp",
            "channels": ["push", "imessage", "sms"],
            "addresses": {"push": "the token of the app"},
            "sender_name": "ACME",
            "max_routes": 3,
            "on_unknown": "race",
            "supersede_key": "login-42",
        },
        request_only=True,
    ),
    OpenApiExample("The least", {"to": "+34600000000", "text": "Your parcel is here"}, request_only=True),
]


class ClientView(APIView):
    """What only holders of a client key reach."""

    authentication_classes = [ApiKeyAuthentication]
    content_negotiation_class = AlwaysJSON
    permission_classes = [HasScope]
    required_scope = Scope.MESSAGES


class MessagesView(ClientView):
    """All messages of the calling client."""

    @extend_schema(
        operation_id="post_message",
        summary="Post a message",
        request=NewMessageSerializer,
        responses={202: AcceptedSerializer, **problems(400, 409, 413, 415, 422)},
        parameters=[_IDEMPOTENCY_KEY, _REPLAYED, _LOCATION],
        examples=_EXAMPLES,
        tags=["messages"],
    )
    def post(self, request: Request) -> Response:
        """Accepts a message for delivery. The answer comes before anything is sent: follow it by its `links.self`."""
        accepted = intake.accept(
            caller(request).client_id,
            _NEW_MESSAGE.parsed(request.data),
            now=utc_now(),
            idempotency_key=idempotency_key(request),
        )
        address = reverse("message", args=[accepted.response["id"]])
        headers = {"Location": address} | ({REPLAYED_HEADER: "true"} if accepted.replayed else {})
        told = {**accepted.response, "links": {"self": address}}
        # Sorted, as JSONB keeps no order: a repeated answer is the same byte for byte.
        return Response(dict(sorted(told.items())), status=202, headers=headers)

    @extend_schema(
        operation_id="list_messages",
        summary="List messages",
        parameters=[MessageQuerySerializer],
        responses={200: MessagePageSerializer, **problems(400)},
        tags=["messages"],
    )
    def get(self, request: Request) -> Response:
        """Lists the client's messages, newest first, without their attempts."""
        query = _MESSAGE_QUERY.run_validation(query_parameters(request))
        rows, next_cursor = page(
            queries.matching(caller(request).client_id, query), cursor=query.get("cursor"), limit=query["limit"]
        )
        return Response({"results": MessageSerializer(rows, many=True).data, "next_cursor": next_cursor})


class MessageView(ClientView):
    """One message."""

    @extend_schema(
        operation_id="get_message",
        summary="Follow a message",
        responses={200: MessageDetailSerializer, **problems(404)},
        tags=["messages"],
    )
    def get(self, request: Request, message_uuid: uuid.UUID) -> Response:
        """Says where a message stands, and what was tried."""
        return _detail(request, message_uuid)


class ExplainView(ClientView):
    """One message, in words."""

    @extend_schema(
        operation_id="explain_message",
        summary="Explain a message",
        responses={200: ExplanationSerializer, **problems(404)},
        tags=["messages"],
    )
    def get(self, request: Request, message_uuid: uuid.UUID) -> Response:
        """Says in sentences what was tried, and why each route was or was not taken."""
        try:
            message = queries.of_client(caller(request).client_id).get(uuid=message_uuid)
        except Message.DoesNotExist:
            raise Http404 from None
        return Response({"id": message.uuid, "sentences": explanation.of(message, now=utc_now())})


class CancelView(ClientView):
    """The withdrawal of one message."""

    @extend_schema(
        operation_id="cancel_message",
        summary="Cancel a message",
        request=None,
        responses={200: MessageDetailSerializer, **problems(404, 409)},
        tags=["messages"],
    )
    def post(self, request: Request, message_uuid: uuid.UUID) -> Response:
        """Withdraws a message that has not been handed over; what has been is reported as it is, with 409."""
        try:
            lifecycle.cancel(caller(request).client_id, message_uuid, now=utc_now())
        except Message.DoesNotExist:
            raise Http404 from None
        return _detail(request, message_uuid)


def _detail(request: Request, message_uuid: uuid.UUID) -> Response:
    try:
        message = queries.one(caller(request).client_id, message_uuid)
    except Message.DoesNotExist:
        raise Http404 from None
    return Response(MessageDetailSerializer(message).data)


def idempotency_key(request: Request) -> str:
    """The header, or an empty string if it was not sent."""
    key = request.META.get("HTTP_IDEMPOTENCY_KEY")
    if key is None:
        return ""
    if not (1 <= len(key) <= MAX_IDEMPOTENCY_KEY and key.isascii() and key.isprintable()):
        raise ValidationError(
            {"Idempotency-Key": f"Send 1 to {MAX_IDEMPOTENCY_KEY} printable ASCII characters, or no such header."}
        )
    return str(key)
