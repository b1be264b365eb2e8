"""Sender health from the first failure to a person's verdict: every process at work, sixty times as fast.

A minute of the rules lasts a second. Each server is the only one of its region, so that a message reaches it or
nobody; those that receive warm-ups stand on another host, far from clients.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from otp_service.core.clock import utc_now
from otp_service.core.signing import new_secret
from otp_service.messages import api_keys
from otp_service.messages.models import Message
from otp_service.simulation.fleet import SimulatedHost, SimulatedUnit
from servers.models import Server, ServerStatusHistory
from servers.recovery import carry_out
from servers.recovery_rules import PersonVerdict
from servers.rules import Event, Status
from tests.deadline import eventually
from tests.factories import ClientFactory, GroupFactory, HostFactory, ServerFactory
from tests.flows.conftest import Api
from tests.flows.processes import Processes
from tests.relay_fixture import RelayThread

#: Minutes of the cooldowns in a row; all too short for a warm-up, so that their exits say nothing.
LADDER = (1, 2, 3, 3)
#: Minutes of a cooldown that holds a warm-up, and of its extensions; most of them are there for it to leave in.
GATED, EXTENSION = 6, 6
#: The longest story takes about half of it.
PATIENCE_S = 150
REGIONS = ("ladder", "dead", "silent", "mended", "chat")
SETTINGS = {
    "HEALTH_SPEED": "60",
    "COOLDOWN_LADDER": ", ".join(f"{minutes}-{minutes}" for minutes in LADDER),
    "WARMUP_AFTER_SHORT_MINUTES": "2-2",
    "WARMUP_MIN_MARGIN_S": "120",
    "WARMUP_RECEIVER_REST_S": "0",
    "WARMUP_SWEEP_S": "1",
    "WARMUP_SWEEP_JITTER_S": "0",
    "VERDICT_DELAY_S": "60",
    "EXTENSION_MINUTES": f"{EXTENSION}-{EXTENSION}",
    "COOLDOWN_SWEEP_S": "1",
    "COOLDOWN_SWEEP_JITTER_S": "0",
    "RELEASE_PAUSE_S": "1",
    "SEND_INTERVAL_MINUTES": "0.001-0.002",
    "POOLS_BY_PREFIX": json.dumps({"": REGIONS}),
    "LANE_DEFAULTS": json.dumps({"otp": {"max_attempts": 1}}),
}
#: How a unit behaves: the simulator's name for it, and its parameters.
Way = tuple[str, Mapping[str, object]]
DEAD: Way = ("dead", {})
HEALTHY: Way = ("healthy", {})
SILENT: Way = ("accepts_and_never_reports", {"sends": False})
TO_SMS: Way = ("falls_back_to_sms", {})


@pytest.fixture
def service(quiet_end: None, tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path, **SETTINGS) as processes:
        processes.start(*processes.all, processes.beat)
        yield processes


@dataclass
class Story:
    """One server, and what its unit does while it rests; out of cooldown it fails whatever clients send.

    It ends with Need Check, or, `ends_released`, with the first cooldown.
    """

    server: Server
    number: str
    in_cooldown: Way
    ends_released: bool = False
    way: Way = HEALTHY

    def told(self) -> list[str]:
        """Its history, oldest first: of each row the code, and what matters of it."""
        return [_line(row) for row in ServerStatusHistory.objects.filter(server=self.server).order_by("id")]

    def is_over(self) -> bool:
        is_released = self.server.released_at is not None
        return self.server.status == Status.NEED_CHECK or (self.ends_released and is_released)


def _line(row: ServerStatusHistory) -> str:
    match row.event:
        case Event.COOLDOWN_STARTED:
            return f"{row.event} #{row.data['number']} of {row.data['minutes']}"
        case Event.COOLDOWN_FINISHED:
            return f"{row.event} {row.data['verdict']}"
        case Event.NEED_CHECK:
            return f"{row.event} {row.data['path']}"
        case _:
            return str(row.event)


@dataclass
class Drill:
    """All stories at once."""

    api: Api
    relay: RelayThread
    stories: Mapping[str, Story]

    def play(self) -> None:
        """Write to each server whenever it may be written to, until all stories are over."""
        try:
            eventually(self._go_on, within_s=PATIENCE_S)
        except AssertionError as error:
            told = "\n".join(f"{name}: {', '.join(story.told())}" for name, story in self.stories.items())
            pytest.fail(f"{error}:\n{told}")

    def _go_on(self) -> bool:
        # Read before the servers: a cooldown starts together with the end of the message that it follows from.
        unanswered = set(Message.objects.filter(finished_at__isnull=True).values_list("region", flat=True))
        servers = Server.objects.select_related("host").in_bulk([s.server.pk for s in self.stories.values()])
        for region, story in self.stories.items():
            story.server = servers[story.server.pk]
            if not (story.is_over() or region in unanswered):
                self._go_on_with(story)
        return all(story.is_over() for story in self.stories.values())

    def _go_on_with(self, story: Story) -> None:
        if story.server.cooldown:
            self.behave(story, story.in_cooldown)
        elif story.server.region != "chat":
            self.behave(story, DEAD)
            self.write_to(story)

    def behave(self, story: Story, way: Way) -> None:
        if way != story.way:
            story.way = way
            name, parameters = way
            self.relay.behave(story.server.host.number, story.server.unit, name, **parameters)

    def write_to(self, story: Story) -> str:
        """Post a client's message that no other server can take."""
        return self.api.send(to=story.number, region=story.server.region)


def build_fleet(relay: RelayThread, webhook_base: str) -> dict[str, Server]:
    """A server in each region on one host, and on another one those that receive; returns the former."""
    now = utc_now()
    clients, receivers = (
        HostFactory.create(number=n, base_url=relay.base_url(n), secret=new_secret(), last_seen_at=now) for n in (1, 2)
    )
    servers = {region: ServerFactory.create(host=clients, region=region, next_send_date=now) for region in REGIONS}
    others = [ServerFactory.create(host=receivers, region="far", next_send_date=now) for _ in range(6)]
    played = [
        SimulatedHost(host.number, host.secret, tuple(SimulatedUnit(s.unit, handle=s.handle) for s in of_host))
        for host, of_host in ((clients, servers.values()), (receivers, others))
    ]
    relay.play(played, webhook_base=webhook_base)
    return servers


@pytest.fixture
def drill(service: Processes, relay: RelayThread) -> Drill:
    servers = build_fleet(relay, service.base)
    gated = GroupFactory.create(cooldown_delay_from=GATED, cooldown_delay_to=GATED)
    gated.servers.set(servers[region] for region in ("dead", "silent", "mended"))
    _, key = api_keys.create(ClientFactory.create(), [api_keys.Scope.MESSAGES], now=utc_now(), expires_at=None)
    stories = {
        "ladder": Story(servers["ladder"], "+34610000001", in_cooldown=DEAD),
        "dead": Story(servers["dead"], "+34610000002", in_cooldown=DEAD),
        "silent": Story(servers["silent"], "+34610000003", in_cooldown=SILENT),
        "mended": Story(servers["mended"], "+34610000004", in_cooldown=HEALTHY, ends_released=True),
        "chat": Story(servers["chat"], "+34610000005", in_cooldown=TO_SMS),
    }
    return Drill(Api(service.base, key), relay, stories)


TWO_FAILURES = ["109", "109"]


def unproven(number: int, end: str) -> list[str]:
    """A cooldown whose warm-ups never arrive: two extensions, then `end`."""
    return [*TWO_FAILURES, f"101 #{number} of {GATED}", "104", "102", "104", "102", "104", end]


def test_failing_servers_end_in_need_check_mended_ones_return_and_a_person_brings_one_back(drill: Drill) -> None:
    stories = drill.stories
    drill.behave(stories["chat"], TO_SMS)
    carry_out(PersonVerdict.START_CHAT_PREHEAT, [stories["chat"].server.pk], now=utc_now(), by="a person")
    drill.play()

    climbed = [
        row
        for number, minutes in enumerate(LADDER, start=1)
        for row in (*TWO_FAILURES, f"101 #{number} of {minutes}", "100 neutral")
    ]
    assert stories["ladder"].told() == [*climbed, *TWO_FAILURES, "106 ladder"]
    three_exits = [*unproven(1, "100 fail_open"), *unproven(2, "100 fail_open"), *unproven(3, "106 fail_open")]
    assert stories["dead"].told() == three_exits
    assert stories["silent"].told() == three_exits
    assert stories["mended"].told() == [*TWO_FAILURES, f"101 #1 of {GATED}", "104", "105", "100 verified"]
    assert stories["chat"].told() == ["112", "106 chat_preheat"]

    check_it_delivers(drill, stories["mended"])
    check_a_person_brings_it_back(drill, stories["ladder"])


def check_it_delivers(drill: Drill, story: Story) -> None:
    drill.behave(story, HEALTHY)
    assert drill.api.ends(drill.write_to(story))["status"] == "delivered"


def check_a_person_brings_it_back(drill: Drill, story: Story) -> None:
    carry_out(PersonVerdict.RECOVER, [story.server.pk], now=utc_now(), by="a person", reason="a new phone")
    story.server.refresh_from_db()
    assert story.server.status == Status.ACTIVE
    assert (story.server.failed_in_row, story.server.cooldown_times, story.server.fail_open_streak) == (0, 0, 0)
    assert story.told()[-1] == "107"
    check_it_delivers(drill, story)
