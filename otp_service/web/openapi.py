"""What the OpenAPI document says of every address: problems, and how a key is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension, OpenApiSerializerExtension
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
    503: "The database does not answer, or this process reads as many uploads as it can at once; nothing was stored."
    " Try again after `Retry-After` seconds.",
}
_MANAGE_MEANINGS = _MEANINGS | {
    400: "The request cannot be understood, or names what does not exist; `errors` names the fields, or the items by"
    " their index. Nothing was changed.",
    401: "No key, or not one of the manage API.",
    404: "There is no such thing.",
    409: "The request conflicts with the present state; the detail says with what.",
    503: "The API is off as long as no key is set (`manage_api_off`); or the database does not answer, and nothing was"
    " stored: try again after `Retry-After` seconds.",
}


class FieldErrorSerializer(serializers.Serializer[Any]):
    """What is wrong with one field."""

    index = serializers.IntegerField(required=False, help_text="of the item, from 0, where each item is looked at")
    field = serializers.CharField(help_text="a dotted path in the item or the body; empty for it as a whole")
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
    return _responses({401, 403, 503, *statuses}, _MEANINGS)


def manage_problems(*statuses: int) -> dict[tuple[int, str], OpenApiResponse]:
    """The same of an operation of the manage API: its key has no scopes that could be missing."""
    return _responses({401, 503, *statuses}, _MANAGE_MEANINGS)


def _responses(statuses: set[int], meanings: Mapping[int, str]) -> dict[tuple[int, str], OpenApiResponse]:
    return {
        (status, "application/problem+json"): OpenApiResponse(ProblemSerializer, description=meanings[status])
        for status in sorted(statuses)
    }


class BearerKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # the library registers it untyped
    """`Authorization: Bearer <key>`; found by the authentication class that views name."""

    target_class = "otp_service.messages.authentication.ApiKeyAuthentication"
    name = "clientKey"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        """The scheme, as OpenAPI writes it."""
        return {"type": "http", "scheme": "bearer", "description": "A client's key: `otp_…`."}


class ManageKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # the library registers it untyped
    """`Authorization: <key>`, as callers of the manage API send it."""

    target_class = "servers.api.authentication.ManageKeyAuthentication"
    name = "manageKey"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        """The scheme, as OpenAPI writes it."""
        return {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "description": "The manage API's key, as it is, or as `Bearer <key>`.",
        }


class StrictSerializerExtension(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]  # the library registers it untyped
    """Unknown fields are refused, and what a serializer says of its fields together is told."""

    target_class = "otp_service.web.strict_fields.StrictSerializer"
    match_subclasses = True

    def map_serializer(self, auto_schema: AutoSchema, direction: str) -> dict[str, Any]:
        """The object's schema, with what the library cannot see."""
        schema = auto_schema._map_serializer(  # type: ignore[no-untyped-call]  # noqa: SLF001 - the library's own way
            self.target, direction, bypass_extensions=True
        )
        return {**schema, "additionalProperties": False, **getattr(self.target, "schema_extra", {})}
