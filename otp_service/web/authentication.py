"""Who calls: bearer tokens, without knowledge of where keys are kept."""

from __future__ import annotations

from dataclasses import dataclass

from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.request import Request


@dataclass(frozen=True, slots=True)
class Caller:
    """The client behind a request, and what its key allows. Is `request.user`, and `request.auth`."""

    client_id: int
    scopes: frozenset[str]

    @property
    def is_authenticated(self) -> bool:
        """DRF and Django ask for it."""
        return True


def caller(request: Request) -> Caller:
    """Who calls, in a view that only callers reach."""
    who = request.auth
    assert isinstance(who, Caller)
    return who


def bearer_token(request: Request) -> str:
    """The token of `Authorization: Bearer <token>`. Raises what becomes 401."""
    header = request.META.get("HTTP_AUTHORIZATION", "")
    if not header:
        raise NotAuthenticated("Send your key in the header Authorization: Bearer <key>.")
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise AuthenticationFailed("Write the header as Authorization: Bearer <key>.", code="not_a_bearer_token")
    return str(token)
