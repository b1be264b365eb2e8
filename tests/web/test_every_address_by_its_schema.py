"""Every operation of the OpenAPI document, called with what the document allows and with what it forbids.

No answer is a 500, and each one is documented: its status, its content type, its headers, its body.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from otp_service.core.clock import utc_now
from otp_service.messages import api_keys
from otp_service.wsgi import application
from tests.factories import CampaignFactory, GroupFactory, MessageFactory, RouteFactory, ServerFactory


@schemathesis.serializer("application/x-ndjson", "text/csv")
def as_it_is(ctx: Any, value: Any) -> bytes:
    """Uploads are lines, whatever is in them."""
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")


EXAMPLES = 20  # of each operation and phase
MANAGE_KEY = "manage-" + "k" * 24


#: What addresses may name, and is there.
THERE = {
    name: str(uuid.uuid5(uuid.NAMESPACE_OID, name))
    for name in ("group_uuid", "server_uuid", "message_uuid", "campaign_uuid")
} | {"e164": "+34600000000", "route_name": "sms:one"}


def _schema() -> Any:
    document = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]  # shipped so
    found = schemathesis.openapi.from_dict(document)
    found.app = application
    return found


schema = _schema()
fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def one_connection(db: None) -> Iterator[None]:
    """The end of a request closes the connection, and with it the test's transaction; as Django's own client does."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def key_of_client(one_connection: None) -> str:
    """A fleet with a group, and a client with a message; returns the client's key."""
    GroupFactory.create(uuid=THERE["group_uuid"]).servers.add(ServerFactory.create(uuid=THERE["server_uuid"]))
    message = MessageFactory.create(uuid=THERE["message_uuid"])
    RouteFactory.create(name=THERE["route_name"])
    CampaignFactory.create(uuid=THERE["campaign_uuid"], client=message.client)
    _, key = api_keys.create(message.client, [api_keys.Scope.MESSAGES], now=utc_now(), expires_at=None)
    return key


def is_written(value: object) -> bool:
    """Whether a parameter of this value comes into the address: null and empty lists do not."""
    if isinstance(value, list | tuple | dict):
        return any(item is not None for item in value)
    return value is not None


@pytest.fixture
def answered(key_of_client: str, settings: Any) -> Callable[..., None]:
    """Makes the call of a case with the key that opens its address, and checks the answer."""
    settings.MANAGE_SERVERS_API_AUTH_KEY = MANAGE_KEY

    def check(case: Any, *excluded: Any) -> None:
        if not all(map(is_written, (case.query or {}).values())):
            excluded = (*excluded, negative_data_rejection)  # what was to be refused may not be in the address at all
        is_manage = case.path.startswith((f"/{settings.MANAGE_API_PREFIX}", "/api/v1/manage/"))
        case.call_and_validate(
            headers={"Authorization": f"Bearer {MANAGE_KEY if is_manage else key_of_client}"},
            # A document cannot say which numbers exist, or which cursors are ours: some of what it allows is refused.
            excluded_checks=[positive_data_acceptance, *excluded],
        )

    return check


@schema.parametrize()  # type: ignore[untyped-decorator]  # of a schema that has no type
@fuzzed
def test_is_answered_as_documented(case: Any, answered: Callable[..., None]) -> None:
    answered(case)


@schema.include(path_regex=r"\{").parametrize()  # type: ignore[untyped-decorator]  # as above
@fuzzed
def test_what_is_there_is_answered_as_documented(case: Any, answered: Callable[..., None]) -> None:
    case.path_parameters = {name: THERE[name] for name in case.path_parameters}
    answered(case, negative_data_rejection)  # it may have been the address that was to be refused
