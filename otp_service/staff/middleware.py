"""What stands around every request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponseBase
from django.utils.functional import SimpleLazyObject

from otp_service.staff.log_in import code_is_required


class CodeRequiredMiddleware:
    """With STAFF_TOTP=required, a session without a code is nobody's: on every page, whoever wrote it.

    Such sessions are those from before the setting, and those whose device was removed.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if code_is_required():
            user: Any = request.user
            # Lazy: an address that asks for no user reads no session.
            request.user = SimpleLazyObject(lambda: user if user.is_verified() else AnonymousUser())  # type: ignore[assignment]  # as Django's own
        return self.get_response(request)
