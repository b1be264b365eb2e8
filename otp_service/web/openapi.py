"""What the OpenAPI document says of every address: problems, and how a key is sent."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers

_MEANINGS = {
    400: "The request cannot be understood; `errors` names the fields.",
    401: "No key, or one that is not valid (any more).",
    403: "The key lacks the scope.",
    404: "There is no such thing, or it is another client's.",
    409: "The request conflicts with the present state; with `Retry-After`, try again.",
    413: "The body is too large.",
    415: "The body is not `application/json`.",
    422: "The request contradicts an earlier one.",
    503: "The database does not answer; nothing was stored. Try again after `Retry-After` seconds.",
}


class FieldErrorSerializer(serializers.Serializer[Any]):
    """What is wrong with one field."""

    field = serializers.CharField(help_text="a dotted path; empty for the body as a whole")
    code = serializers.CharField(help_text="stable, for programs")
    detail = serializers.CharField(help_text="what to do")

    class Meta:
        ref_name = "FieldError"


class ProblemSerializer(serializers.Serializer[Any]):
    """An error: RFC 9457."""

    type = serializers.CharField(default="about:blank")
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField(help_text="stable, for programs")
    detail = serializers.CharField(help_text="what to do")
    errors = FieldErrorSerializer(many=True, required=False)  # type: ignore[assignment]  # the metaclass takes it away


def problems(*statuses: int) -> dict[tuple[int, str], OpenApiResponse]:
    """The problem responses of an operation, for `extend_schema(responses=...)`."""
    return {
        (status, "application/problem+json"): OpenApiResponse(ProblemSerializer, description=_MEANINGS[status])
        for status in sorted({401, 403, 503, *statuses})
    }


class BearerKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # the library registers it untyped
    """`Authorization: Bearer <key>`; found by the authentication class that views name."""

    target_class = "otp_service.messages.authentication.ApiKeyAuthentication"
    name = "clientKey"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        """The scheme, as OpenAPI writes it."""
        return {"type": "http", "scheme": "bearer", "description": "A client's key: `otp_…`."}
