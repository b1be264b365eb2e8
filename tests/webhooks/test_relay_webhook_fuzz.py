"""Whatever bytes a host signs, the answer is 200, 400 or 413: never a fault of ours."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

from django.test import Client
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from tests.factories import NOON
from tests.servers.relay.test_events_fuzz import data, events
from tests.webhooks.relay_poster import RelayPoster, about, event
from webhooks.inbound import api
from webhooks.inbound.models import RawCall, RelayEvent

LONG_SERVICE = event("delivered", guid="guid-1", service="s" * 32)


def assert_answered(poster: RelayPoster, body: bytes) -> None:
    with mock.patch.object(api, "utc_now", return_value=NOON):
        answer = poster.posts(body)
    assert answer.status in {200, 400, 413}, answer
    stored = (RelayEvent.objects.count(), RawCall.objects.count())
    assert (stored == (0, 0)) == (answer.status != 200)


def a_host() -> RelayPoster:
    """A fault comes out as an answer, as it does for a real one."""
    return RelayPoster.of_new_host(Client(raise_request_exception=False))


class Fuzz(TestCase):
    @settings(max_examples=60, deadline=None)
    @given(body=st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
    def test_any_bytes(self, body: bytes) -> None:
        assert_answered(a_host(), body)

    @settings(max_examples=120, deadline=None)
    @given(document=events | st.lists(events, min_size=1, max_size=4))
    @example(document=LONG_SERVICE)
    def test_anything_that_looks_like_events(self, document: Any) -> None:
        assert_answered(a_host(), json.dumps(document).encode())

    @settings(max_examples=60, deadline=None)
    @given(data=data, kind=st.sampled_from(["message_sent", "message_failed", "delivered", "read"]))
    @example(data={"service": "s" * 32}, kind="delivered")
    def test_anything_about_an_attempt_of_ours(self, data: dict[str, Any], kind: str) -> None:
        poster = a_host()
        (one,) = poster.in_flight()
        news = event(kind)
        assert_answered(poster, json.dumps(news | {"data": data | about(one)}).encode())
