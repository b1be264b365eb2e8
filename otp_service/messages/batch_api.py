"""The client API: many messages in one request, each answered for itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.urls import reverse
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from otp_service.core.clock import utc_now
from otp_service.core.errors import ServiceError
from otp_service.messages import batch
from otp_service.messages.api import MAX_IDEMPOTENCY_KEY, ClientView
from otp_service.messages.batch import Item
from otp_service.messages.intake import Accepted
from otp_service.messages.plan import NewMessage
from otp_service.messages.rules import Lane
from otp_service.messages.serializers import LinksSerializer, NewMessageSerializer
from otp_service.web.authentication import caller
from otp_service.web.openapi import ProblemSerializer, problems
from otp_service.web.problems import document, field_errors
from otp_service.web.strict_fields import StrictCharField, StrictSerializer

MAX_ITEMS = 1_000
_KEY = "idempotency_key"


class BatchItemSerializer(NewMessageSerializer):
    """A message to deliver, with a key of its own."""

    idempotency_key = StrictCharField(
        required=False,
        max_length=MAX_IDEMPOTENCY_KEY,
        help_text="as the header Idempotency-Key of a message that is posted alone: printable ASCII characters",
    )

    def validate_idempotency_key(self, key: str) -> str:
        """What a header could hold: the same key may come again alone."""
        if not (key.isascii() and key.isprintable()):
            raise ValidationError("Send printable ASCII characters.", code="invalid")
        return key

    def item(self, data: Any) -> Item:
        """The item that is written here. Raises ValidationError."""
        values = self.run_validation(data)
        key = values.pop(_KEY, "")
        return Item(NewMessage(**values), key)


class BatchSerializer(StrictSerializer):
    """Messages to deliver, in order."""

    messages = serializers.ListField(
        child=serializers.JSONField(allow_null=True),
        allow_empty=False,
        max_length=MAX_ITEMS,
        help_text=f"1 to {MAX_ITEMS:,}: each as the body of a message that is posted alone, with an `idempotency_key` "
        "of its own if you like. An item that is not so is refused, and the others are not.",
    )


class BatchResultSerializer(serializers.Serializer[Any]):
    """What became of one item."""

    index = serializers.IntegerField(help_text="of the item, from 0")
    result = serializers.ChoiceField(
        choices=["accepted", "replayed", "refused"], help_text="`replayed`: its key was answered so before"
    )
    id = serializers.UUIDField(required=False)
    status = serializers.CharField(required=False)
    lane = serializers.ChoiceField(choices=[lane.value for lane in Lane], required=False)
    created_at = serializers.DateTimeField(required=False, help_text="when its lifetime began")
    expires_at = serializers.DateTimeField(required=False)
    links = LinksSerializer(required=False)
    problem = ProblemSerializer(required=False, help_text="why it was refused")


class BatchAnswerSerializer(serializers.Serializer[Any]):
    """What became of each item, in the order in which they were sent."""

    results = BatchResultSerializer(many=True)


_ITEM = BatchItemSerializer()
_BATCH = BatchSerializer()
_EXAMPLE = OpenApiExample(
    "Two messages",
    {
        "messages": [
            {"to": "+34600000000", "text": "Your parcel is here", "idempotency_key": "parcel-1"},
            {"to": "+351912345678", "text": "Your parcel is late", "idempotency_key": "parcel-2"},
        ]
    },
    request_only=True,
)


class BatchView(ClientView):
    """Many messages at once."""

    max_body = 2_000_000  # bytes: below what the web process takes in

    @extend_schema(
        operation_id="post_batch",
        summary="Post many messages",
        request=BatchSerializer,
        responses={200: BatchAnswerSerializer, **problems(400, 409, 413, 415)},
        examples=[_EXAMPLE],
        tags=["messages"],
    )
    def post(self, request: Request) -> Response:
        """Accepts up to 1,000 messages. Each is accepted, or refused with a problem of its own, and answered in order.

        Keys stand in the items: the same batch again sends nothing again.
        """
        # The items first as they are: a fault of one is answered in its place.
        given = _BATCH.run_validation(_only_the_list(request.data))["messages"]
        read = [_read(item) for item in given]
        items = [item for item in read if isinstance(item, Item)]
        outcomes = iter(batch.accept_many(caller(request).client_id, items, now=utc_now()))
        told = (next(outcomes) if isinstance(item, Item) else item for item in read)
        return Response({"results": list(_results(told))})


def _only_the_list(data: Any) -> Any:
    """The body; what is no list under `messages` is refused as a whole."""
    if isinstance(data, Mapping) and "messages" in data and not isinstance(data["messages"], list):
        raise ValidationError({"messages": [ErrorDetail("Send a JSON list of messages.", code="not_a_list")]})
    return data


def _read(data: Any) -> Item | ValidationError:
    if data is None:  # of which the serializer would say that nothing was sent
        return ValidationError("Send an object with the fields of a message.", code="invalid")
    try:
        return _ITEM.item(data)
    except ValidationError as error:
        return error


def _results(outcomes: Iterable[Accepted | ServiceError | ValidationError]) -> Iterable[dict[str, Any]]:
    for index, outcome in enumerate(outcomes):
        match outcome:
            case Accepted(response, replayed):
                links = {"self": reverse("message", args=[response["id"]])}
                yield {"index": index, "result": "replayed" if replayed else "accepted", **response, "links": links}
            case ServiceError():
                problem = document(outcome.status, outcome.code, outcome.detail, title=outcome.title, **outcome.data)
                yield {"index": index, "result": "refused", "problem": problem}
            case ValidationError():
                yield {"index": index, "result": "refused", "problem": _invalid(outcome)}


def _invalid(error: ValidationError) -> dict[str, Any]:
    rows = list(field_errors(error.detail))
    named = ", ".join(sorted({row["field"] for row in rows if row["field"]})) or "the item"
    return document(400, "invalid", f"Mend {named} and send it again.", errors=rows)
