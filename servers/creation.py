"""New hosts and servers, checked so that they can work as soon as they are there."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from itertools import chain
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, models, transaction

from otp_service.core import clock
from otp_service.core.crypto import CryptoError
from otp_service.core.errors import ServiceError
from otp_service.core.signing import new_secret
from servers import history
from servers.handles import normalised
from servers.models import Host, Server
from servers.rules import Event, RelayProtocol, Status

#: What a host signs with its previous secret is accepted for so long, while it is given the new one.
PREVIOUS_SECRET_FOR = timedelta(hours=24)


class CreationRefused(ServiceError):
    """It cannot be made as it was described; the detail says what to write instead."""

    status = 409
    code = "creation_refused"


def create_host(number: int, base_url: str, *, name: str = "", protocol: RelayProtocol = RelayProtocol.NATIVE) -> Host:
    """A relay host with a secret of its own; it is online once it is heard of. Raises CreationRefused."""
    address = plain_address(base_url)
    if Host.objects.filter(number=number).exists():
        raise CreationRefused(f"There is a host {number} already.")
    host = Host(number=number, base_url=address, name=name, protocol=protocol.value, secret=new_secret())
    _insert(host)
    return host


def create_server(
    region: str,
    unit: int,
    host_number: int,
    handle: str,
    *,
    now: datetime,
    name: str = "",
    by: str = "",
    rng: random.Random = clock.rng,
) -> Server:
    """A server that may send at once, with the row of history that says so. Raises CreationRefused."""
    address = _address(handle)
    host = Host.objects.filter(number=host_number).first()
    if host is None:
        raise CreationRefused(f"There is no host {host_number}: create_host makes one.")
    _refuse_taken(region, unit, host)
    server = Server(
        region=region, unit=unit, host=host, handle=address, name=name, next_send_date=now, tie=rng.random()
    )
    with transaction.atomic():
        _insert(server)
        new, data = {"status": Status.ACTIVE.value}, {"by": by} if by else {}
        history.change(server, Event.MARKED_ACTIVE, new, at=now, note="created", data=data)
    return server


def rotate_secret(host_id: int, *, now: datetime, previous_until: datetime | None) -> Host:
    """Give a host a new secret, and keep the one that it has valid for PREVIOUS_SECRET_FOR.

    `previous_until` is what the caller saw of the host: when somebody gave it a new secret since, another one would
    end the one that the host still signs with. Raises CreationRefused then, and Host.DoesNotExist.
    """
    with transaction.atomic():
        host = Host.objects.select_for_update(no_key=True).get(pk=host_id)
        if host.previous_secret_until != previous_until:
            raise CreationRefused(f"Somebody gave {host} a new secret since: look at it again.")
        host.previous_secret = _readable_secret(host)
        host.previous_secret_until = now + PREVIOUS_SECRET_FOR if host.previous_secret else None
        host.secret = new_secret()
        host.save(update_fields=["secret", "previous_secret", "previous_secret_until"])
    return host


def serves_numbers(region: str) -> bool:
    """Whether any number is served by the pool of this region: POOLS_BY_PREFIX names it."""
    return region in chain.from_iterable(settings.POOLS_BY_PREFIX.values())


def plain_address(base_url: str) -> str:
    """Where a host listens, as it is kept: without a slash at its end. Raises CreationRefused."""
    try:
        parts = urlsplit(base_url)
        is_plain = parts.scheme in {"http", "https"} and parts.hostname and not (parts.query or parts.fragment)
    except ValueError:
        is_plain = False
    if not is_plain:
        raise CreationRefused(
            "BASE_URL begins with http:// or https:// and ends with the path, as in https://a.example."
        )
    return base_url.rstrip("/")


def _readable_secret(host: Host) -> str | None:
    """None where no key opens it: then nothing is left to keep valid."""
    try:
        secret: str = host.secret
    except CryptoError:
        return None
    return secret


def _address(handle: str) -> str:
    try:
        return normalised(handle)
    except ValueError as error:
        raise CreationRefused(f"HANDLE: {error}") from None


def _refuse_taken(region: str, unit: int, host: Host) -> None:
    taken = Server.objects.filter(models.Q(region=region) | models.Q(host=host), unit=unit).first()
    if taken is not None:
        raise CreationRefused(f"There is a unit {unit} already: {taken} on host {taken.host.number}.")


def _insert(row: Host | Server) -> None:
    try:
        row.full_clean(validate_unique=False, validate_constraints=False)
        with transaction.atomic():
            row.save(force_insert=True)
    except ValidationError as error:
        faults = (f"{name}: {' '.join(sentences)}" for name, sentences in error.message_dict.items())
        raise CreationRefused(" ".join(faults)) from None
    except IntegrityError:
        raise CreationRefused("Somebody made it at this moment.") from None
