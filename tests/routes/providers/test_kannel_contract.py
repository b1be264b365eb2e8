"""The Kannel provider against peers that misbehave, and its table of outcomes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace

import aiohttp
import pytest
from structlog.testing import capture_logs

from otp_service.core.http import Timeouts
from otp_service.core.outcomes import ErrorClass, Receipt, ReportedState, Submission
from otp_service.routes.providers.base import OutsideProvider, Posted
from otp_service.routes.providers.kannel import Kannel
from otp_service.routes.route_rules import RouteSpec
from tests.routes.providers.contract import ProviderContract
from tests.routes.providers.contract_base import ATTEMPT, Refused, Reported
from tests.routes.providers.kannel_routes import CREDENTIALS, attempt, called, route, said, words
from tests.servers.relay.peers import Reply, answers, peer, says

FOREIGN_ID = "e91dbf97-b6a2-4210-9595-dec4611c1bdd"


def no(name: str, status: int, case: str, error_class: ErrorClass = ErrorClass.ROUTE_REJECTED) -> Refused:
    return Refused(name, said(status, case), error_class, error_code=status)


def report(
    name: str,
    case: str,
    state: ReportedState,
    error_class: ErrorClass | None = None,
    *,
    code: int | None = None,
    foreign_id: str = "",
) -> Reported:
    receipt = Receipt(
        state, attempt_uuid=ATTEMPT, provider_message_id=foreign_id, error_class=error_class, error_code=code
    )
    return Reported(name, words(case), [receipt])


class TestKannel(ProviderContract):
    ACCEPTANCE = said(202, "accepted"), ""
    REFUSALS = (
        no("wrong password", 403, "wrong_password"),
        no("no SMSC for it", 403, "not_routable"),
        no("no sender", 400, "no_sender"),
        no("number not allowed", 400, "denied_number"),
        no("wrong address", 404, "unknown_request"),
        no("queue full", 503, "queue_full", ErrorClass.TEMPORARY),
        Refused("too fast", answers(429, Retry_After="7"), ErrorClass.THROTTLED, 429, dt.timedelta(seconds=7)),
    )
    NONSENSE = (
        answers(202),
        answers(202, b"Hello"),
        answers(202, b" 0:"),
        said(200, "accepted"),
        said(500, "accepted"),
    )
    REPORTS = (
        report("queued by the SMSC", "dlr_queued", ReportedState.QUEUED),
        report("the SMSC has it", "dlr_sent", ReportedState.SENT),
        report("delivered", "dlr_delivered", ReportedState.DELIVERED, foreign_id=FOREIGN_ID),
        report(
            "not delivered",
            "dlr_undelivered",
            ReportedState.FAILED,
            ErrorClass.RECIPIENT_UNREACHABLE,
            code=34,
            foreign_id="6699",
        ),
        report(
            "rejected after all", "dlr_rejected", ReportedState.FAILED, ErrorClass.ROUTE_REJECTED, foreign_id="6699"
        ),
        report("refused without a word", "dlr_refused", ReportedState.FAILED, ErrorClass.TEMPORARY),
        report("refused: bad number", "dlr_bad_number", ReportedState.FAILED, ErrorClass.RECIPIENT_INVALID, code=11),
        report("stale in its own queue", "dlr_stale", ReportedState.FAILED, ErrorClass.EXPIRED),
        report("a type that nobody asked for", "dlr_intermediate", ReportedState.UNKNOWN),
    )
    UNREADABLE = (
        b"t=receipt-token",
        b"type=1&t=receipt-token",
        b"type=1&attempt=7&t=receipt-token",
        f"attempt={ATTEMPT}&t=receipt-token".encode(),
    )
    CAN_BE_ASKED = False

    def provider_with(self, timeouts: Timeouts) -> OutsideProvider:
        return Kannel(timeouts)

    def spec_of(self, base_url: str) -> RouteSpec:
        known = route(base_url, names=("ACME",), status_url=f"{base_url}/status.xml")
        return replace(known, credentials={**CREDENTIALS, "status_password": "look-at-it"})

    def posted(self, spec: RouteSpec, payload: bytes) -> Posted:
        return called(payload.decode())

    def forged(self, spec: RouteSpec, payload: bytes) -> Mapping[str, Posted]:
        query = payload.decode()
        token = spec.credentials["receipt_token"]
        return {
            "no token": called(query.replace(f"&t={token}", "")),
            "an empty token": called(query.replace(token, "")),
            "another token": called(query.replace(token, "receipt-tokeN")),
            "a longer token": called(f"{query}+"),
            "a token that is not ASCII": called(query.replace(token, "t%C3%B6ken")),
            "the token in the body": replace(called(query.replace(f"&t={token}", "")), body=payload),
            "too many fields": called(query + "&a=" * 20),
        }


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(said(202, "queued"), id="held until its SMSC is back"),
        pytest.param(said(202, "immediate"), id="answered at once"),
        pytest.param(
            says(b"HTTP/1.1 202 Accepted\r\nContent-Length: 24\r\n\r\n" + words("accepted")[:5]), id="its rest was lost"
        ),
    ],
)
async def test_another_way_to_accept(session: aiohttp.ClientSession, reply: Reply) -> None:
    async with peer(reply) as kannel:
        result = await Kannel().submit(session, attempt(route(kannel.base_url)))
    assert (result.submission, result.error_class) == (Submission.ACCEPTED, None)


async def test_an_answer_that_nobody_knows_is_logged_by_its_status_alone(session: aiohttp.ClientSession) -> None:
    with capture_logs() as logs:
        async with peer(said(500, "sending_failed")) as kannel:
            await Kannel().submit(session, attempt(route(kannel.base_url)))
    assert logs == [{"event": "answer_not_known", "log_level": "warning", "route": "sms:one", "status": 500}]
