"""The demo: a fleet for the simulator to play, a client with a key, and an administrator.

It fills a database without hosts, once. Later it changes only the port that the demo's hosts are played on,
and makes a new key and password where the file that holds them does not open this database any more.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.db.models import Max

from otp_service.core.errors import ServiceError
from otp_service.core.signing import new_secret
from otp_service.messages import api_keys
from otp_service.messages.models import Client
from otp_service.simulation.demo_file import DEFAULT_SIMULATOR_PORT, DemoAccess, read_access, write_access
from servers.memberships import How, change_groups
from servers.models import Group, Host, Server
from servers.rules import Status

CLIENT = "Demo"
ADMINISTRATOR = "admin"
#: Spanish, so that the largest pools serve it; none of the fleet's own numbers.
RECIPIENT = "+34600000001"

Units = Mapping[str, tuple[int, ...]]  # region → units

#: Host → its units. Hosts 458 and 460 are those of the production fleet's report, with eight ua units from 228 to 243.
FLEET: Mapping[int, Units] = {
    411: {"es": (101, 102, 103, 104, 105, 106)},
    412: {"es": (107, 108, 109, 110, 111, 112)},
    413: {"es": (113, 114, 115, 116, 117), "vj": (181, 182)},
    414: {"es": (118, 119, 120), "zp": (151, 152)},
    421: {"zp": (153, 154, 155, 156, 157)},
    422: {"zp": (158, 159, 160, 161, 162)},
    423: {"zp": (163, 164, 165), "es": (121, 122)},
    431: {"vj": (183, 184, 185, 186), "pt": (201,)},
    441: {"pt": (202, 203, 204, 205, 206), "vj": (187,)},
    458: {"ua": (228, 230, 232, 235, 251, 252)},
    460: {"ua": (237, 239, 240, 243, 253, 254)},
    471: {"us": (11, 12, 13, 14, 15, 16), "pt": (207,)},
}


@dataclass(frozen=True, slots=True)
class DemoGroup:
    """Whole minutes of cooldown, both ends included, and the units that are in the group."""

    cooldown: tuple[int, int]
    units: Units


#: The five groups that the production fleet's report compares, in the order of their priority.
GROUPS: Mapping[str, DemoGroup] = {
    "Shortest": DemoGroup((10, 30), {"es": (101,), "zp": (153,)}),
    "Shortest #2": DemoGroup((15, 25), {"es": (107,), "ua": (232, 237, 239, 240)}),
    "Short": DemoGroup((15, 45), {"zp": (158,), "vj": (183,)}),
    "Short #2": DemoGroup((15, 45), {"ua": (228, 230, 235, 243)}),
    "Medium": DemoGroup((30, 90), {"es": (113,), "pt": (202,)}),
}
THRESHOLD = 2  # failures in a row; the same in all five
SEND_INTERVAL = (8, 12)  # minutes; the same in all five

#: Region → what a handle begins with, and how many digits of the unit follow. zp and vj serve Spain, as es does.
_NUMBERS: Mapping[str, tuple[str, int]] = {
    "es": ("+346001", 5),
    "zp": ("+346002", 5),
    "vj": ("+346003", 5),
    "pt": ("+351910", 6),
    "ua": ("+38050", 7),
    "us": ("+120255501", 2),  # 555-0100 to 555-0199 belong to nobody
}
#: How long ago the pause after each server's last message ended: drawn, so that they take turns from the start.
_FREE_SINCE_AT_MOST = timedelta(minutes=12)
_LOCK = 0x64656D6F  # "demo": the advisory lock, apart from everybody else's
_PASSWORD_BYTES = 18  # 24 characters


class DemoRefused(ServiceError):
    """What the database holds is not the demo's to change."""

    status = 409
    code = "demo_refused"


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was done, in numbers; all 0 and False when everything was there."""

    hosts: int = 0
    servers: int = 0
    moved_hosts: int = 0
    new_access: bool = False


def handle_of(region: str, unit: int) -> str:
    """The number that a demo unit writes from, E.164."""
    prefix, digits = _NUMBERS[region]
    return f"{prefix}{unit:0{digits}d}"


def base_url_of(number: int, port: int) -> str:
    """Where the simulator plays a host."""
    return f"http://127.0.0.1:{port}/hosts/{number}"


def prepare(*, simulator_port: int | None, access_file: Path, now: datetime, rng: random.Random) -> Prepared:
    """Make of the demo what is missing. Two at once wait for each other. Raises DemoRefused.

    Without a port the hosts stay where they are. A fleet that the demo did not make is left alone, and gets
    neither key nor administrator.
    """
    with _one_at_a_time():
        access = None
        with transaction.atomic():
            if not Host.objects.exists():
                made = _fill(simulator_port or DEFAULT_SIMULATOR_PORT, now, rng)
            elif Client.objects.filter(name=CLIENT).exists():
                made = Prepared(moved_hosts=_move(simulator_port) if simulator_port else 0)
            else:
                return Prepared()
            if not _opens(read_access(access_file), now):
                access = _make_access(now)
        # After the commit, so that the file never holds what was rolled back; a write that fails is made up for
        # at the next start, when the file does not open anything.
        if access is not None:
            write_access(access_file, access)
    return Prepared(made.hosts, made.servers, made.moved_hosts, new_access=access is not None)


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Held by the session, not the transaction: the file is written after the commit."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        try:
            yield
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])


def _fill(port: int, now: datetime, rng: random.Random) -> Prepared:
    _, is_new = Client.objects.get_or_create(name=CLIENT, defaults={"created_at": now})
    if is_new and get_user_model().objects.filter(username=ADMINISTRATOR).exists():
        raise DemoRefused(
            f"There is a user {ADMINISTRATOR} already, whose password the demo would change: "
            "give that user another name, or start without demo data."
        )
    hosts = Host.objects.bulk_create(
        Host(number=number, name=f"Demo host {number}", base_url=base_url_of(number, port), secret=new_secret())
        for number in FLEET
    )
    servers = Server.objects.bulk_create(server for host in hosts for server in _servers_of(host, now, rng))
    _join_groups({(server.region, server.unit): server for server in servers}, now)
    return Prepared(hosts=len(hosts), servers=len(servers))


def _servers_of(host: Host, now: datetime, rng: random.Random) -> Iterator[Server]:
    for region, units in FLEET[host.number].items():
        for unit in units:
            yield Server(
                host=host,
                region=region,
                unit=unit,
                name=f"Demo {region} {unit}",
                handle=handle_of(region, unit),
                status=Status.ACTIVE,
                next_send_date=now - rng.uniform(0.1, 1.0) * _FREE_SINCE_AT_MOST,
                tie=rng.random(),
            )


def _join_groups(servers: Mapping[tuple[str, int], Server], now: datetime) -> None:
    """Put servers into the groups, with the rows that reports learn of it from."""
    highest = Group.objects.aggregate(highest=Max("priority"))["highest"] or 0
    for priority, (name, plan) in enumerate(GROUPS.items(), start=highest + 1):
        group = _group(name, plan, priority)
        members = [servers[region, unit] for region, units in plan.units.items() for unit in units]
        change_groups([member.pk for member in members], [group.pk], How.ADD, now=now, by="demo_data")


def _group(name: str, plan: DemoGroup, priority: int) -> Group:
    """A group that is left from an earlier demo stays as it is."""
    cooldown_from, cooldown_to = plan.cooldown
    send_from, send_to = SEND_INTERVAL
    group, _ = Group.objects.get_or_create(
        name=name,
        defaults={
            "priority": priority,
            "failed_in_row": THRESHOLD,
            "cooldown_delay_from": cooldown_from,
            "cooldown_delay_to": cooldown_to,
            "send_from_message_interval": send_from,
            "send_to_message_interval": send_to,
        },
    )
    return group


def _move(port: int) -> int:
    """Point the demo's hosts at another port. One that a person gave a real address is the demo's no more."""
    hosts = Host.objects.filter(number__in=FLEET, base_url__regex=r"^http://127\.0\.0\.1:\d+/hosts/\d+$")
    moved = 0
    for host in hosts:
        wanted = base_url_of(host.number, port)
        if host.base_url != wanted:
            # Compare and set: an address that was changed meanwhile is a person's.
            moved += Host.objects.filter(pk=host.pk, base_url=host.base_url).update(base_url=wanted)
    return moved


def _opens(access: DemoAccess | None, now: datetime) -> bool:
    """Whether this is the way into this database; a key that a person ended is, and stays ended."""
    if access is None:
        return False
    try:
        api_keys.caller(access.api_key, now=now)
    except api_keys.KeyRefused as refusal:
        return refusal.code != "key_not_valid"
    return True


def _make_access(now: datetime) -> DemoAccess:
    """A new key and a new password; keys that were made before stay valid, for whoever copied them."""
    _, key = api_keys.create(Client.objects.get(name=CLIENT), [api_keys.Scope.MESSAGES], now)
    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    user, _ = get_user_model().objects.get_or_create(
        username=ADMINISTRATOR, defaults={"is_staff": True, "is_superuser": True}
    )
    user.set_password(password)
    user.save(update_fields=["password"])
    return DemoAccess(username=ADMINISTRATOR, password=password, api_key=key, to=RECIPIENT)
