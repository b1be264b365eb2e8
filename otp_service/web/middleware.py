"""What stands around every request."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from django.db import InterfaceError, OperationalError, connection
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from otp_service.web.problems import database_away

log = structlog.get_logger(__name__)


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
