"""Errors as `application/problem+json` (RFC 9457): the one place where they become HTTP.

A document has `type`, `title`, `status`, `detail`, `code` (stable, for programs) and, for bad fields,
`errors`: a list of `{"field", "code", "detail"}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import structlog
from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from rest_framework import exceptions, status
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import APIView, set_rollback

from otp_service.core.errors import ServiceError

log = structlog.get_logger(__name__)

CONTENT_TYPE = "application/problem+json"
RETRY_AFTER_S = 2  # what we ask for when the database is away

_TITLES = {
    400: "The request cannot be understood",
    401: "Authentication is needed",
    403: "This is not allowed",
    404: "There is no such thing",
    405: "This method is not offered here",
    406: "No such representation",
    409: "The request conflicts with another",
    413: "The body is too large",
    415: "This kind of body is not taken",
    422: "The request contradicts an earlier one",
    500: "Something went wrong on our side",
    503: "Not now",
}


def document(status_code: int, code: str, detail: str, *, title: str = "", **more: Any) -> dict[str, Any]:
    """A problem document."""
    return {
        "type": "about:blank",
        "title": title or _TITLES.get(status_code, "The request failed"),
        "status": status_code,
        "code": code,
        "detail": detail,
        **more,
    }


def problem(
    status_code: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
) -> HttpResponse:
    """A problem document as a plain Django response, for what happens outside DRF."""
    return HttpResponse(
        json.dumps(document(status_code, code, detail, **more)),
        status=status_code,
        content_type=CONTENT_TYPE,
        headers=dict(headers or {}),
    )


def database_away() -> HttpResponse:
    """What every address answers when PostgreSQL does not: nothing was accepted."""
    return problem(
        503,
        "database_away",
        "The database does not answer. Nothing was stored; try again.",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """DRF's hook. None lets Django answer, which for an unforeseen error is `server_error` below."""
    if isinstance(error, OperationalError | InterfaceError):
        raise error  # DatabaseAwayMiddleware answers
    set_rollback()
    request = context["request"]
    # Some views show YAML or HTML; a problem document is JSON all the same.
    request.accepted_renderer, request.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
    if isinstance(error, ServiceError):
        return _service_error(error)
    if isinstance(error, Http404):
        error = exceptions.NotFound()
    if isinstance(error, PermissionDenied):
        error = exceptions.PermissionDenied()
    if isinstance(error, exceptions.ValidationError):
        rows = list(field_errors(error.detail))
        named = ", ".join(sorted({row["field"] for row in rows if row["field"]})) or "the body"
        return _response(document(400, "invalid", f"Mend {named} and send it again.", errors=rows))
    if isinstance(error, exceptions.APIException):
        return _api_exception(error, context["view"])
    return None


def _service_error(error: ServiceError) -> Response:
    response = _response(document(error.status, error.code, error.detail, title=error.title, **error.data))
    if "retry_after_s" in error.data:
        response["Retry-After"] = str(error.data["retry_after_s"])
    return response


def _api_exception(error: exceptions.APIException, view: APIView) -> Response:
    code = error.get_codes()
    detail = _next_step(error, view)
    response = _response(document(error.status_code, code if isinstance(code, str) else "error", detail))
    challenge = getattr(error, "auth_header", None)
    if challenge:
        response["WWW-Authenticate"] = challenge
    return response


def _next_step(error: exceptions.APIException, view: APIView) -> str:
    """What is wrong, and what to do about it."""
    match error:
        case exceptions.NotFound():
            return "There is none of this id: check it."
        case exceptions.MethodNotAllowed():
            offered = [method for method in view.allowed_methods if method != "OPTIONS"]
            return f"{view.request.method} is not offered here: use {' or '.join(offered)}."
        case exceptions.UnsupportedMediaType():
            taken = [parser.media_type for parser in view.get_parsers()]
            return f"{error.detail} Send Content-Type: {' or '.join(taken)}."
        case _:
            return str(error.detail)


def _response(body: dict[str, Any]) -> Response:
    return Response(body, status=body["status"], content_type=CONTENT_TYPE)


def field_errors(detail: Any, path: str = "") -> Iterator[dict[str, str]]:
    """DRF's nested error detail as flat rows; `field` is a dotted path with list indexes."""
    if isinstance(detail, Mapping):
        for key, inner in detail.items():
            step = "" if key == "non_field_errors" else str(key)
            yield from field_errors(inner, f"{path}.{step}".strip("."))
        return
    if isinstance(detail, list):
        for index, inner in enumerate(detail):
            leaf = isinstance(inner, exceptions.ErrorDetail)
            yield from field_errors(inner, path if leaf else f"{path}.{index}".strip("."))
        return
    yield {"field": path, "code": str(getattr(detail, "code", "invalid")), "detail": str(detail)}


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's 404 handler."""
    how = "check its spelling" if request.path.endswith("/") else "end it with a slash, or check its spelling"
    return problem(404, "not_found", f"Nothing stands at this address: {how}.")


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's 400 handler."""
    return problem(400, "bad_request", "The request cannot be understood.")


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's 500 handler."""
    return problem(status.HTTP_500_INTERNAL_SERVER_ERROR, "internal", "It was logged. Trying again may help.")
