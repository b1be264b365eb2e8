"""Sender health a second time: what a server must look like after everything that can happen to it.

Written from the design alone, and simple: it imports nothing of the product, knows no database, and leaves nothing
to chance. `high` says which end of a range every draw gives. Times are aware UTC.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

MINUTE = dt.timedelta(minutes=1)
HOUR = 60 * MINUTE

LADDER = ((60, 120), (60, 120), (720, 840), (720, 840))
THRESHOLD = 2
RESET_WINDOW = 14 * HOUR
ENOUGH, ENOUGH_PREHEATING = 11, 2
EXTENSION, MAX_EXTENSIONS = (55, 70), 2
EXITS_WITHOUT_PROOF = 3
LEAD = 75 * MINUTE
MARGIN = 5 * MINUTE
PROOF_FOR = 3 * HOUR
VERDICT_DELAY = 3 * MINUTE
RELEASE_PAUSE = 10 * MINUTE
RECEIVER_REST = 5 * MINUTE


@dataclass
class ModelGroup:
    """Parameters in force during a window of the day, both ends included; 0 and "" are "not set"."""

    priority: int
    threshold: int = 0
    delay: tuple[int, int] = (0, 0)
    reset_rule: str = ""
    window: tuple[dt.time, dt.time] = (dt.time(0), dt.time(23, 59, 59))

    def covers(self, now: dt.datetime) -> bool:
        start, end = self.window
        at = now.time().replace(microsecond=0)
        return start <= at <= end if start <= end else not end < at < start


@dataclass
class ModelSend:
    """An internal send: accepted, unclear (it may have left), refused (it did not), or reported."""

    at: dt.datetime
    receiver: int
    state: str

    @property
    def may_have_left(self) -> bool:
        return self.state != "refused"


@dataclass
class ModelServer:
    """One server; `told` are the history rows that the last thing that happened must have left."""

    groups: list[ModelGroup]
    preheating: bool = False
    next_send_date: dt.datetime | None = None
    status: str = "active"
    signed_in: bool = True
    failed_in_row: int = 0
    cooldown: bool = False
    cooldown_times: int = 0
    fail_open_streak: int = 0
    extensions: int = 0
    start: dt.datetime | None = None
    end: dt.datetime | None = None
    slot: dt.datetime | None = None
    sent_at: dt.datetime | None = None
    proved: bool = False
    released_at: dt.datetime | None = None
    deliveries: list[dt.datetime] = field(default_factory=list)
    sends: list[ModelSend] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    @property
    def rests(self) -> bool:
        return self.cooldown or self.status != "active"

    def leave_cooldown(self) -> None:
        self.cooldown, self.proved, self.extensions = False, False, 0
        self.start = self.end = self.slot = self.sent_at = None

    def group(self, now: dt.datetime) -> ModelGroup:
        """The one in force; without one, a group that sets nothing."""
        in_force = [group for group in self.groups if group.covers(now)]
        return max(in_force, key=lambda group: group.priority, default=ModelGroup(0))


class HealthModel:
    """A few servers, and what happens to them."""

    def __init__(self, servers: Mapping[int, ModelServer], *, high: bool) -> None:
        self.servers = servers
        self._end_of_range = int(high)

    def _draw(self, minutes: tuple[int, int]) -> dt.timedelta:
        return minutes[self._end_of_range] * MINUTE

    # --- client messages ---

    def fail(self, server: ModelServer, now: dt.datetime, *, count: bool) -> None:
        if count:
            server.failed_in_row += 1
            server.told.append("109")
        if server.rests:
            return
        if server.failed_in_row >= (server.group(now).threshold or THRESHOLD):
            self._next_cooldown(server, now)
        elif server.cooldown_times and self._has_delivered_enough(server, now):
            server.cooldown_times = 0
            server.told.append("113")

    def deliver(self, server: ModelServer, now: dt.datetime) -> None:
        server.deliveries.append(now)
        if server.failed_in_row:
            server.failed_in_row = 0
            server.told.append("113")
        looks = server.group(now).reset_rule in {"since_release", "either"}
        if looks and not server.rests and server.cooldown_times and self._has_delivered_enough(server, now):
            server.cooldown_times = 0
            server.told.append("113")

    def _has_delivered_enough(self, server: ModelServer, now: dt.datetime) -> bool:
        enough = ENOUGH_PREHEATING if server.preheating else ENOUGH
        rule = server.group(now).reset_rule or "calendar_window"
        lately = sum(now - at <= RESET_WINDOW for at in server.deliveries) >= enough
        released = server.released_at
        since = sum(released is None or at >= released for at in server.deliveries) >= enough
        return {"calendar_window": lately, "since_release": since, "either": lately or since}[rule]

    def _next_cooldown(self, server: ModelServer, now: dt.datetime) -> None:
        if server.cooldown_times >= len(LADDER):
            self.need_check(server, "ladder")
            return
        delay = server.group(now).delay
        length = self._draw(delay if min(delay) > 0 else LADDER[server.cooldown_times])
        slot = now + self._draw((20, 30) if length >= HOUR else (5, 10))
        server.cooldown = True
        server.cooldown_times += 1
        server.start, server.end = now, now + length
        server.slot = slot if slot <= server.end - MARGIN else None
        server.told.append("101")

    # --- warm-ups ---

    def wants_warm_up(self, server: ModelServer, now: dt.datetime) -> bool:
        if not server.cooldown or server.status != "active" or not server.signed_in:
            return False
        if server.slot is None or server.end is None or server.sent_at is not None or server.proved:
            return False
        if any(send.state == "unclear" and send.at >= server.slot for send in server.sends):
            return False  # it may be out already
        return server.slot <= now < server.end and now >= server.end - LEAD

    def may_receive(self, now: dt.datetime, partner: int | None) -> set[int]:
        """Those that somebody may write to; `partner` stands by all the time, unless it is None."""
        sends = [send for server in self.servers.values() for send in server.sends if send.may_have_left]
        busy = {send.receiver for send in sends if now - send.at < RECEIVER_REST}
        free = {key for key, server in self.servers.items() if not server.rests and server.signed_in}
        return (free | ({partner} if partner is not None else set())) - busy

    def send_warm_ups(self, answer: str, now: dt.datetime, receivers: Collection[int]) -> list[int]:
        """Who writes, in the order of the keys: as many as there are receivers for."""
        wanting = sorted(key for key, server in self.servers.items() if self.wants_warm_up(server, now))
        senders = wanting[: len(receivers)]
        for key in senders:
            server = self.servers[key]
            if answer in {"accepted", "signed out"}:
                server.sent_at = now
                server.told.append("104")
        return senders

    def report(self, server: ModelServer, send: ModelSend, service: str, now: dt.datetime) -> None:
        """Its host says that an internal send went out."""
        was_unclear, send.state = send.state == "unclear", "reported"
        if was_unclear and server.slot is not None and server.sent_at is None and send.at >= server.slot:
            server.sent_at = send.at
            server.told.append("104")
        if service == "imessage":
            self._prove(server, [send], now)

    def inbound(self, server: ModelServer, now: dt.datetime) -> None:
        """Something came in from the server's handle at another server of ours."""
        self._prove(server, server.sends, now)

    def _prove(self, server: ModelServer, sends: Collection[ModelSend], now: dt.datetime) -> None:
        if server.start is None or server.proved:
            return
        if any(s.may_have_left and s.at >= server.start and now - s.at <= PROOF_FOR for s in sends):
            server.proved = True
            server.told.append("105")

    # --- the end of a cooldown ---

    def sweep(self, now: dt.datetime) -> None:
        for server in self.servers.values():
            if server.end is not None and server.end <= now:
                self._judge(server, server.end, now)

    def _judge(self, server: ModelServer, end: dt.datetime, now: dt.datetime) -> None:
        own_fault = server.sent_at is not None or (server.slot is not None and not server.signed_in)
        if server.proved:
            server.fail_open_streak = 0
        elif own_fault:
            if server.sent_at is not None and now < server.sent_at + VERDICT_DELAY:
                return
            if server.extensions < MAX_EXTENSIONS:
                self._extend(server, end, now)
                return
            server.fail_open_streak += 1
            if server.fail_open_streak >= EXITS_WITHOUT_PROOF:
                self.need_check(server, "fail_open")
                return
        verdict = "verified" if server.proved else "fail_open" if own_fault else "neutral"
        server.leave_cooldown()
        server.failed_in_row, server.released_at = 0, now
        server.next_send_date = end + RELEASE_PAUSE
        server.told.append(f"100 {verdict}")

    def _extend(self, server: ModelServer, end: dt.datetime, now: dt.datetime) -> None:
        longer = self._draw(EXTENSION)
        after = self._draw((5, 10))
        begins = end if now <= end + longer - MARGIN else now  # so late a sweep leaves a whole span all the same
        server.end, server.slot = begins + longer, begins + after
        server.extensions += 1
        server.sent_at = None
        server.told.append("102")

    # --- people and hosts ---

    def need_check(self, server: ModelServer, path: str) -> None:
        server.status = "need_check"
        server.leave_cooldown()
        server.told.append(f"106 {path}")

    def sign(self, server: ModelServer, *, signed_in: bool) -> None:
        if server.signed_in is not signed_in:
            server.signed_in = signed_in
            server.told.append("120")

    def decide(self, server: ModelServer, verdict: str, now: dt.datetime) -> bool:
        """A person's verdict, told by one row; False, and nothing done, where it would change nothing."""
        takes_out = {"need_check": "need_check", "lost": "lost", "disable": "disabled", "delete": "deleted"}
        if server.status == "deleted" and verdict != "mark_active":
            return False
        if verdict in takes_out:
            return self._take_out(server, takes_out[verdict])
        counted = server.failed_in_row or server.cooldown_times or server.fail_open_streak
        if verdict == "recover" and server.status != "need_check":
            return False
        if verdict == "mark_active" and not (server.rests or server.preheating or counted):
            return False
        if verdict == "start_preheat" and server.status == "active" and server.preheating:
            return False
        server.leave_cooldown()
        server.status, server.preheating = "active", verdict == "start_preheat"
        server.failed_in_row = server.cooldown_times = server.fail_open_streak = 0
        server.released_at = now
        server.told.append({"recover": "107", "mark_active": "108", "start_preheat": "110"}[verdict])
        return True

    def _take_out(self, server: ModelServer, status: str) -> bool:
        if server.status == status:
            return False
        if status == "need_check":
            self.need_check(server, "admin")
            return True
        server.leave_cooldown()
        server.status, server.preheating = status, False
        server.told.append({"lost": "115", "deleted": "116", "disabled": "117"}[status])
        return True
