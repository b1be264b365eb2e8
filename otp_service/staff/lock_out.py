"""Failed log-ins: how they are counted, and what whoever had too many is told.

Two counters, of failures within STAFF_LOCKOUT_S: one of the pair of user name and address, one of the address,
which may have ADDRESS_SHARE times as many (an office has one address). No counter of the user name alone: with
one, a stranger could keep any of the staff out by guessing from elsewhere. Guesses from many addresses are held
off by the length of passwords, and by STAFF_TOTP.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from axes.helpers import get_client_ip_address
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.db.models import Max, QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import add_never_cache_headers

from otp_service.core.crypto import KeyedHash
from otp_service.staff.addresses import client_address
from otp_service.web.batches import remove_batch

ADDRESS_SHARE = 4
_LOCKS = 0x73746166  # "staf": the class of these advisory locks, apart from everybody else's
_HASH_DIGITS = 16  # enough to tell the names that nobody has from each other
_BATCH = 1_000  # rows removed in one transaction

Credentials = Mapping[str, Any]


class LockOut(AxesDatabaseHandler):  # type: ignore[misc]  # axes has no types
    """Counts in PostgreSQL, for every web process."""

    def get_failures(self, request: HttpRequest, credentials: Credentials | None = None) -> int:
        """Failures as the pair has them: those of the whole address weigh less."""
        pair, address = map(_failures, self.get_user_attempts(request, credentials))
        return max(pair, address // ADDRESS_SHARE)

    def lasts_until(self, request: HttpRequest, credentials: Credentials | None) -> datetime:
        """When the last of the failures that lock this request out is forgotten."""
        pair, address = self.get_user_attempts(request, credentials)
        full = pair if _failures(address) < ADDRESS_SHARE * settings.AXES_FAILURE_LIMIT else address
        newest: datetime | None = full.aggregate(newest=Max("attempt_time"))["newest"]
        now: datetime = request.axes_attempt_time  # type: ignore[attr-defined]  # axes wrote it there
        return (newest or now) + settings.AXES_COOLOFF_TIME

    def user_login_failed(self, sender: Any, credentials: dict[str, Any], request: Any = None, **more: Any) -> None:
        """Count a failure. A try of somebody who is locked out is none: it makes the time no longer."""
        if request is not None and request.axes_locked_out:
            request.axes_credentials = credentials
            return
        super().user_login_failed(sender, credentials, request, **more)

    def clean_expired_user_attempts(self, request: Any = None, credentials: Credentials | None = None) -> int:
        """Forget what this address did too long ago; `remove_old_attempts` finds the rest."""
        since = request.axes_attempt_time - settings.AXES_COOLOFF_TIME
        old = AccessAttempt.objects.filter(ip_address=request.axes_ip_address, attempt_time__lte=since)
        removed, _ = old.delete()
        return int(removed)

    def reset_user_attempts(self, request: HttpRequest, credentials: Credentials | None = None) -> int:
        """Forget the failures of who has logged in; what else was tried from that address stays counted."""
        pair, _address = self.filter_user_attempts(request, credentials)
        removed, _ = pair.delete()
        return int(removed)


def _failures(attempts: QuerySet[Any]) -> int:
    return attempts.aggregate(failures=Sum("failures_since_start"))["failures"] or 0


@contextmanager
def one_at_a_time(request: HttpRequest) -> Iterator[bool]:
    """A transaction in which no other try of the same address is looked at; False when one is, just now.

    Without it many tries at once would all be let through before the first failure is counted. Nobody waits for
    it: hashing a password takes long, and those who wait would hold the threads that serve everybody else.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            address = get_client_ip_address(request) or ""
            key = zlib.crc32(address.encode()) - 2**31  # PostgreSQL's integer is signed
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", [_LOCKS, key])
            (alone,) = cursor.fetchone()
        yield alone


def busy(request: HttpRequest) -> HttpResponse:
    """429: another try of this address is being looked at. It counts for nothing."""
    context = {**admin.site.each_context(request), "title": "One log-in at a time"}
    answer = render(request, "staff/busy.html", context, status=429)
    answer["Retry-After"] = "2"
    add_never_cache_headers(answer)
    return answer


def counted_address(request: HttpRequest) -> str | None:
    """AXES_CLIENT_IP_CALLABLE."""
    return client_address(
        request.META.get("REMOTE_ADDR", ""),
        request.META.get("HTTP_X_FORWARDED_FOR", ""),
        behind_proxy=settings.BEHIND_TLS_PROXY,
    )


def counted_name(request: HttpRequest, credentials: Credentials | None) -> str:
    """AXES_USERNAME_CALLABLE: a user's name, or a keyed hash of what is no user's name.

    People type passwords into that field; none is kept, or logged.
    """
    typed = str((credentials or request.POST).get("username") or "")
    if get_user_model().objects.filter(username=typed).exists():
        return typed
    digest = KeyedHash.primary(settings.HASH_KEYS).digest(typed, purpose="staff_user_name")
    return f"unknown {digest.hex()[:_HASH_DIGITS]}"


def in_words(name: str, address: str, user_agent: str, path: str, request: HttpRequest) -> str:
    """AXES_CLIENT_STR_CALLABLE: what its log lines call whoever tries. `name` is `counted_name`'s."""
    return f"{name} from {address}"


def locked_out(
    request: HttpRequest, response: HttpResponse | None = None, credentials: Credentials | None = None
) -> HttpResponse:
    """AXES_LOCKOUT_CALLABLE: 429, and when to try again."""
    until = LockOut().lasts_until(request, credentials)
    left: timedelta = until - request.axes_attempt_time  # type: ignore[attr-defined]  # axes wrote it there
    seconds = int(left.total_seconds()) + 1
    answer = render(
        request,
        "staff/locked_out.html",
        {
            **admin.site.each_context(request),
            "title": "Too many failed log-ins",
            "until": until + timedelta(minutes=1),  # shown without its seconds
            "minutes": -(-seconds // 60),
        },
        status=429,
    )
    answer["Retry-After"] = str(seconds)
    add_never_cache_headers(answer)
    return answer


def remove_old_attempts(*, now: datetime, batch: int = _BATCH) -> int:
    """Forget failures that no longer count; returns how many rows."""
    old = AccessAttempt.objects.filter(attempt_time__lt=now - settings.AXES_COOLOFF_TIME)
    return remove_batch(old.order_by("pk"), batch)
