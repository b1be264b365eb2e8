"""A campaign is uploaded over HTTP and sent by a running dispatcher; it is paused, resumed and cancelled meanwhile.

Nothing is claimed once a pause or a cancel was answered: what is in flight then ends, and nothing follows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from otp_service.core.clock import utc_now
from otp_service.messages import api_keys
from otp_service.messages.models import Attempt, Message
from otp_service.messages.rules import AttemptState
from tests.deadline import eventually
from tests.factories import ClientFactory
from tests.flows.conftest import Api, Fleet
from tests.flows.processes import Processes
from tests.http import Answer, call
from tests.relay_fixture import RelayThread

LINES, BAD_EVERY = 5_000, 100


@pytest.fixture
def service(quiet_end: None, tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path, SEND_INTERVAL_MINUTES="0.001-0.002") as processes:
        processes.start(processes.web, processes.dispatcher)
        yield processes


@pytest.fixture
def busy_relay(service: Processes, relay: RelayThread) -> RelayThread:
    """Hosts that take their time, so that calls are in flight at any moment."""
    fleet = Fleet(relay, service.base)
    for server in fleet.build(hosts=4, servers_per_host=10):
        fleet.behave(server, "slow", seconds=0.5)
    return relay


class CampaignApi(Api):
    """A client that sends campaigns."""

    def upload(self, lines: bytes) -> Mapping[str, Any]:
        """Post NDJSON that must be accepted."""
        headers = {**self._authorised(), "Content-Type": "application/x-ndjson", "Idempotency-Key": "only one"}
        answer = call("POST", f"{self.base}/api/v1/campaigns/", lines, headers)
        assert answer.status == 202, answer
        return dict(answer.body)

    def ask(self, campaign: Mapping[str, Any], what: str) -> Mapping[str, Any]:
        """`pause`, `resume` or `cancel`: it must be answered with the campaign as it is then."""
        answer = self._at(campaign, f"{what}/", "POST")
        assert answer.status == 200, answer
        return dict(answer.body)

    def look(self, campaign: Mapping[str, Any]) -> Mapping[str, Any]:
        return dict(self._at(campaign, "", "GET").body)

    def _at(self, campaign: Mapping[str, Any], path: str, method: str) -> Answer:
        return call(method, f"{self.base}{campaign['links']['self']}{path}", None, self._authorised())


@pytest.fixture
def campaigns(service: Processes) -> CampaignApi:
    _, key = api_keys.create(ClientFactory.create(), [api_keys.Scope.MESSAGES], now=utc_now(), expires_at=None)
    return CampaignApi(service.base, key)


def lines() -> bytes:
    """Each with a number of its own; one in BAD_EVERY has none at all."""
    numbers = (f"+346{30_000_000 + n}" if n % BAD_EVERY else "+340" for n in range(LINES))
    return b"".join(json.dumps({"to": number, "text": "Until Sunday"}).encode() + b"\n" for number in numbers)


def claimed() -> set[int]:
    return set(Attempt.objects.filter(message__lane="promo").values_list("id", flat=True))


def check_nothing_follows(campaigns: CampaignApi) -> set[int]:
    """What was claimed until now is all there is, although the dispatcher goes on: it delivers an otp meanwhile."""
    until_now = claimed()
    campaigns.ends(campaigns.send(to="+34699999999"))
    eventually(lambda: not Attempt.objects.filter(state=AttemptState.SUBMITTING).exists())
    assert claimed() == until_now
    return until_now


def test_nothing_is_sent_after_a_pause_or_a_cancel_was_answered(
    service: Processes, campaigns: CampaignApi, busy_relay: RelayThread
) -> None:
    campaign = campaigns.upload(lines())
    assert (campaign["accepted"], campaign["refused"]) == (LINES - LINES // BAD_EVERY, LINES // BAD_EVERY)

    eventually(lambda: len(claimed()) > 50, within_s=30)
    campaigns.ask(campaign, "pause")
    before = check_nothing_follows(campaigns)

    campaigns.ask(campaign, "resume")
    eventually(lambda: len(claimed() - before) > 50, within_s=30)
    campaigns.ask(campaign, "cancel")
    sent = check_nothing_follows(campaigns)

    eventually(lambda: not Message.objects.filter(finished_at__isnull=True).exists(), within_s=30)
    ends = Counter(Message.objects.filter(lane="promo").values_list("status", flat=True))
    assert ends == {"delivered": len(sent), "cancelled": campaign["accepted"] - len(sent)}
    assert campaigns.look(campaign)["messages"] == {**campaigns.look(campaign)["messages"], **ends}
    copies = Counter(send.to for send in busy_relay.sends() if send.to != "+34699999999")
    assert len(copies) == len(sent)
    assert set(copies.values()) == {1}
