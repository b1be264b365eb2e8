"""A route that sends receipts is waited for; one that sends none is not: nothing would come of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.routes.cascade import Cascade, on_its_way, two_sms_routes
from tests.routes.steps import ACCEPTED, UNKNOWN, is_ready

pytestmark = pytest.mark.django_db
WINDOW = 10  # seconds until a receipt should have come: `delivery_s` of a route


@pytest.fixture(autouse=True)
def _simulated(settings: Any) -> None:
    settings.SIMULATED_ROUTES = True


def unclear(*, has_receipts: bool) -> Cascade:
    two_sms_routes(has_receipts=has_receipts, delivery_s=WINDOW)
    cascade = on_its_way(on_unknown="race")
    assert cascade.attempts(UNKNOWN) == "sms:one"
    return cascade


@pytest.mark.parametrize(
    ("has_receipts", "window"), [(False, 1), (True, WINDOW)], ids=["none: at its first question", "after its window"]
)
def test_a_copy_leaves_over_the_next_route_when_the_window_is_over(has_receipts: bool, window: int) -> None:
    cascade = unclear(has_receipts=has_receipts)
    for seconds in range(window):
        assert not is_ready(cascade.row()), seconds
        cascade.goes(1)
        cascade.resolves()
    assert is_ready(cascade.row())
    assert cascade.attempts(ACCEPTED) == "sms:two"
