"""A log-in that has its password and waits for its code: kept in the session, which is nobody's until then."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare
from django_otp.util import random_hex

GOOD_FOR = timedelta(minutes=10)
_KEY = "staff_log_in"
_SECRET_BYTES = 20  # what RFC 4226 asks for


@dataclass(frozen=True, slots=True, repr=False)
class Pending:
    """Who has given a password; where to go afterwards; the secret (hex) that a new device would get.

    `proved`: a recovery code was given too, and only a device is missing.
    """

    user: User
    backend: str
    next_url: str
    secret: str
    proved: bool


def begin(request: HttpRequest, user: User, next_url: str, *, now: datetime) -> None:
    """Remember that `user` has given the password, in a new session: nobody else can know its key."""
    request.session.flush()
    request.session[_KEY] = {
        "user": user.pk,
        "backend": user.backend,  # type: ignore[attr-defined]  # authenticate() wrote it there
        "password": user.get_session_auth_hash(),
        "since": now.isoformat(),
        "next": next_url,
        "secret": random_hex(_SECRET_BYTES),
        "proved": False,
    }


def current(request: HttpRequest, *, now: datetime) -> Pending | None:
    """The log-in that waits in this session; None if there is none, or it may not go on."""
    kept: dict[str, Any] | None = request.session.get(_KEY)
    if kept is None or now - datetime.fromisoformat(kept["since"]) > GOOD_FOR:
        return None
    user = get_user_model().objects.filter(pk=kept["user"], is_active=True, is_staff=True).first()
    if user is None or not constant_time_compare(kept["password"], user.get_session_auth_hash()):
        return None
    return Pending(user, kept["backend"], kept["next"], kept["secret"], kept["proved"])


def prove(request: HttpRequest) -> None:
    """Remember that a recovery code was given too."""
    request.session[_KEY] = request.session[_KEY] | {"proved": True}


def end(request: HttpRequest) -> None:
    """Forget it: it is done."""
    request.session.pop(_KEY, None)
