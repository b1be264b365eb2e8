"""What stands around every request."""

from __future__ import annotations

import re
from collections.abc import Callable

import structlog
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import InterfaceError, OperationalError, connection
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import reverse

from otp_service.web.problems import database_away, problem

log = structlog.get_logger(__name__)

_KEY = re.compile(r"[0-9]{1,18}|[0-9a-f-]{32,36}", re.ASCII)  # of a row


class DatabaseAwayMiddleware:
    """PostgreSQL away, in whatever view: 503 with Retry-After, never a 500, and nothing accepted."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer for a database that went away; every other exception takes Django's way."""
        if not isinstance(exception, OperationalError | InterfaceError):
            return None
        log.error("database_away", error=type(exception).__name__)
        connection.close()
        return database_away()


class AdminAddressMiddleware:
    """What no page of the admin can be asked is answered 400, for those of other packages too.

    A NUL in the address, of which PostgreSQL holds none; a pattern to match columns by, which may be none, or run
    for ever; a ticked row whose key is no key.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path.startswith(reverse("admin:index")) and (fault := _fault(request)):
            return problem(400, "bad_request", fault)
        return self.get_response(request)


def _fault(request: HttpRequest) -> str:
    query = request.META.get("QUERY_STRING", "")
    if "\0" in request.path or "\0" in query or "%00" in query:
        return "The address has a NUL character (%00) in it: take it out."
    if any(name.endswith(("__regex", "__iregex")) for name in request.GET):
        return "Pages cannot be filtered by a pattern: use the filters and the search."
    if not all(_KEY.fullmatch(key) for key in request.POST.getlist(ACTION_CHECKBOX_NAME)):
        return "What was ticked is no key of a row."
    return ""
