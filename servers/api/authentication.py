"""The manage API's keys: two settings, so that callers can change theirs one after another."""

from __future__ import annotations

import enum
import hmac
from typing import Any

from django.conf import settings
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from otp_service.core.errors import ServiceError


class ManageKey(enum.StrEnum):
    """Which key opened the manage API, in the words of history. Is `request.auth`."""

    CURRENT = "manage API"
    PREVIOUS = "manage API (previous key)"


class ManageApiOff(ServiceError):
    """Nobody can be told from anybody else while there is no key."""

    status = 503
    code = "manage_api_off"
    title = "The manage API is off"


class ManageKeyAuthentication(BaseAuthentication):
    """`Authorization: <key>`, or `Authorization: Bearer <key>`."""

    def authenticate(self, request: Request) -> tuple[None, ManageKey]:
        if not settings.MANAGE_SERVERS_API_AUTH_KEY:
            raise ManageApiOff("Set MANAGE_SERVERS_API_AUTH_KEY, and start the service again.")
        sent = _key_sent(request)
        if not sent:
            raise NotAuthenticated("Send the manage API's key in the header Authorization.")
        found = _key_that_is(sent)
        if found is None:
            raise AuthenticationFailed("This is not a key of the manage API.", code="key_not_valid")
        return None, found

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="manage"'


class HasManageKey(BasePermission):
    """Whoever has a key of the manage API may do everything in it."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.auth, ManageKey)


def _key_sent(request: Request) -> str:
    """What the header holds, without the scheme that may stand before it."""
    header: str = request.META.get("HTTP_AUTHORIZATION", "").strip(" \t")
    scheme, _, token = header.partition(" ")
    return token.strip(" ") if scheme.lower() == "bearer" else header


def _key_that_is(sent: str) -> ManageKey | None:
    # Both are compared, whatever the first says: the time that it takes tells nothing.
    is_current = _same(sent, settings.MANAGE_SERVERS_API_AUTH_KEY)
    is_previous = _same(sent, settings.MANAGE_SERVERS_API_AUTH_KEY_PREVIOUS)
    if is_current:
        return ManageKey.CURRENT
    return ManageKey.PREVIOUS if is_previous else None


def _same(sent: str, key: str) -> bool:
    return hmac.compare_digest(sent.encode("utf-8", "surrogatepass"), key.encode()) and bool(key)
