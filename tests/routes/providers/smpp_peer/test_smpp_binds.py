"""Binds are kept up, and let go."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from typing import Any

import pytest
from structlog.testing import capture_logs

from otp_service.core.outcomes import ErrorClass, Submission, SubmitResult
from otp_service.messages.rules import Channel
from otp_service.routes.providers.base import Health
from otp_service.routes.providers.smpp import Smpp
from otp_service.routes.providers.smpp_binds import RouteBinds
from otp_service.routes.providers.smpp_settings import SmppSettings
from otp_service.routes.route_rules import RouteKind, RouteSpec
from tests.routes.providers.smpp_peer.peer import PASSWORD, Peer
from tests.routes.providers.smpp_peer.steps import NO_SESSION, QUICK, Told, bare, bound, is_up, route, submit, until


async def test_an_smsc_that_has_forgotten_the_bind_is_bound_to_again(peer: Peer, smpp: Smpp) -> None:
    spec = await bound(smpp, route(peer))
    await peer.order("refuse", status=0x04)
    assert bare(await submit(smpp, spec)) == SubmitResult(
        Submission.REFUSED, error_class=ErrorClass.CONNECTION_REFUSED, error_code=0x04
    )
    await peer.until_got("bind", 2)
    await until(lambda: is_up(smpp, spec))
    assert (await submit(smpp, spec)).submission is Submission.ACCEPTED


@pytest.mark.parametrize("order", ["drop", "unbind"])
async def test_a_bind_that_the_smsc_ends_is_made_again(peer: Peer, smpp: Smpp, order: str) -> None:
    spec = await bound(smpp, route(peer))
    await peer.order(order)
    await peer.until_got("bind", 2)
    await until(lambda: is_up(smpp, spec))
    assert (await submit(smpp, spec)).submission is Submission.ACCEPTED


async def test_a_wrong_password_is_tried_once_and_then_left_alone_for_long(peer: Peer, smpp: Smpp) -> None:
    spec = route(peer, password="wrong", binds=3)
    with capture_logs() as logs:
        await smpp.hold([spec])
        await until(lambda: _is_refused(smpp, spec))
        result = await submit(smpp, spec)
    assert bare(result) == SubmitResult(
        Submission.NOT_CONNECTED, error_class=ErrorClass.ROUTE_REJECTED, error_code=0x0E
    )
    assert [line["again_in_s"] >= 48 for line in logs if line["event"] == "smpp_not_bound"] == [True]
    assert [line["log_level"] for line in logs] == ["error"]
    assert len(peer.got("bind")) == 1
    assert "wrong" not in repr((logs, result, await smpp.check(NO_SESSION, spec)))


async def _is_refused(smpp: Smpp, spec: RouteSpec) -> bool:
    return "0x0000000e" in (await smpp.check(NO_SESSION, spec)).detail


async def test_a_silent_smsc_is_left_and_bound_to_again(peer: Peer, told: Told) -> None:
    settings = SmppSettings(
        host="127.0.0.1",
        port=peer.port,
        system_id="acme",
        password=PASSWORD,
        response_timeout=dt.timedelta(milliseconds=200),
        enquire_every=dt.timedelta(milliseconds=20),
    )
    binds = RouteBinds("sms:one", settings, told, rng=random.Random(1), pauses=QUICK)
    binds.open()
    await peer.until_got("enquire_link", 2)  # the first one was answered
    assert len(peer.got("bind")) == 1
    await peer.order("mute")
    await peer.until_got("bind", 2)
    await binds.close()


async def test_it_unbinds_after_the_responses_that_are_due(peer: Peer, smpp: Smpp) -> None:
    spec = await bound(smpp, route(peer))
    await peer.order("swallow", times=1)
    call = asyncio.create_task(submit(smpp, spec))
    await peer.until_got("submit")
    closing = asyncio.create_task(smpp.close())
    await asyncio.sleep(0)
    assert peer.got("unbind") == []
    await peer.order("answer_swallowed")
    assert (await call).submission is Submission.ACCEPTED
    await closing
    assert len(peer.got("unbind")) == 1
    await peer.until_got("close")
    assert len(peer.got("bind")) == 1


@pytest.mark.parametrize(
    ("changed", "error_class"),
    [
        pytest.param({"enabled": False}, ErrorClass.CONNECTION_REFUSED, id="disabled"),
        pytest.param({"binds": 0}, ErrorClass.ROUTE_REJECTED, id="unreadable"),
    ],
)
async def test_a_route_that_is_out_of_use_is_unbound(
    peer: Peer, smpp: Smpp, changed: dict[str, Any], error_class: ErrorClass
) -> None:
    await bound(smpp, route(peer))
    spec = route(peer, **changed)
    await smpp.hold([spec])
    assert len(peer.got("unbind")) == 1
    assert bare(await submit(smpp, spec)) == SubmitResult(Submission.NOT_CONNECTED, error_class=error_class)
    assert len(peer.got("bind")) == 1


async def test_only_other_settings_make_it_bind_anew(peer: Peer, smpp: Smpp) -> None:
    await bound(smpp, route(peer))
    await smpp.hold([route(peer)])
    assert await is_up(smpp, route(peer))
    assert peer.got("unbind") == []
    await bound(smpp, route(peer, window=5))
    assert (len(peer.got("unbind")), len(peer.got("bind"))) == (1, 2)


async def test_check_names_a_setting_that_cannot_be_read(smpp: Smpp) -> None:
    spec = RouteSpec("sms:one", Channel.SMS, RouteKind.SMPP, settings={"host": ""})
    assert await smpp.check(NO_SESSION, spec) == Health(False, "host must be 1 to 255 ASCII characters.")


async def test_health_says_how_many_binds_are_up(peer: Peer, smpp: Smpp) -> None:
    spec = route(peer, binds=2)
    assert await smpp.check(NO_SESSION, spec) == Health(False, "This process holds no binds of the route.")
    await bound(smpp, spec)

    async def all_up() -> bool:
        return await smpp.check(NO_SESSION, spec) == Health(True, "2 of 2 binds are up.")

    await until(all_up)
    await peer.die()

    async def all_down() -> bool:
        health = await smpp.check(NO_SESSION, spec)
        return health.detail.startswith("0 of 2 binds are up: ") and not health.ok

    await until(all_down)
