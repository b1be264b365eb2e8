"""Nobody without the manage API's key gets anything, at whatever address of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpResponse
from pytest_django import Settings

from otp_service.messages import api_keys
from otp_service.messages.api_keys import Scope
from servers import urls
from servers.checks import check_manage_key
from servers.models import Group, Server, ServerStatusHistory
from tests.factories import ClientFactory, GroupFactory, ServerFactory
from tests.servers.manage_api import KEY, PREVIOUS, ManageApi, body, problem, written


def endpoints() -> list[tuple[str, str]]:
    """Every method of every address, out of the addresses themselves: a new one cannot be forgotten."""
    found = []
    for pattern in urls.urlpatterns:
        view: Any = pattern.callback
        methods = set(view.view_class().allowed_methods) - {"OPTIONS"}
        found += [(method, str(pattern.name)) for method in sorted(methods)]
    return found


Call = Callable[..., HttpResponse]


@pytest.fixture
def manage(db: None, now: dt.datetime, monkeypatch: pytest.MonkeyPatch) -> ManageApi:
    return ManageApi(monkeypatch, now)


@pytest.fixture
def group() -> Group:
    return GroupFactory.create(name="before")


@pytest.fixture
def server(group: Group) -> Server:
    server = ServerFactory.create()
    server.groups.add(group)
    return server


@pytest.fixture(params=endpoints(), ids=" ".join)
def call(request: pytest.FixtureRequest, manage: ManageApi, group: Group, server: Server) -> Call:
    """One call that would succeed, with whatever header is given."""
    method, name = request.param
    pattern = next(pattern for pattern in urls.urlpatterns if pattern.name == name)
    path = str(pattern.pattern)
    path = path.replace("<any_case_uuid:group_uuid>", str(group.uuid))
    path = path.replace("<any_case_uuid:server_uuid>", str(server.uuid))
    return lambda **headers: manage.call(method, path, sent(method, path, group, server), headers=headers)


def sent(method: str, path: str, group: Group, server: Server) -> str:
    """A body that does something."""
    if method in {"GET", "DELETE"}:
        return ""
    if path == "actions/":
        return f'{{"action": "disable", "servers": ["{server.uuid}"], "reason": "test"}}'
    if "assignments" in path:
        return f'{{"items": [{{"uuid": "{server.uuid}", "groups": ["{group.uuid}"]}}]}}'
    if "/servers/" in path:
        return f'{{"servers": ["{server.uuid}"]}}'
    return '{"name": "after", "priority": 1000}'


def is_untouched(server: Server) -> bool:
    """Nothing was written, and nothing is otherwise."""
    assert written() == (0, 0)
    return [group.name for group in server.groups.all()] == ["before"] and not ServerStatusHistory.objects.exists()


def test_there_are_endpoints_to_try() -> None:
    assert len(endpoints()) >= 17
    assert {method for method, _ in endpoints()} == {"GET", "POST", "PATCH", "DELETE"}


@pytest.mark.parametrize("header", [KEY, f"Bearer {KEY}"])
def test_key_opens_what_the_tests_below_try(call: Call, header: str) -> None:
    assert call(Authorization=header).status_code in {200, 201, 204}


@pytest.mark.parametrize("header", [f"bearer {KEY}", f"BEARER  {KEY}", PREVIOUS, f"Bearer {PREVIOUS}"])
def test_key_is_taken_in_each_of_these_forms(manage: ManageApi, header: str) -> None:
    assert manage.call("GET", "groups/", headers={"Authorization": header}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param({}, "not_authenticated", id="no header"),
        pytest.param({"Authorization": ""}, "not_authenticated", id="an empty header"),
        pytest.param({"Authorization": KEY.upper()}, "key_not_valid", id="other case"),
    ],
)
def test_stranger_is_refused_everywhere(call: Call, server: Server, headers: dict[str, str], expected: str) -> None:
    answer = call(**headers)
    assert problem(answer, 401)["code"] == expected
    assert answer["WWW-Authenticate"] == 'Bearer realm="manage"'
    assert is_untouched(server)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param({"Authorization": "Bearer"}, "not_authenticated", id="a scheme alone"),
        pytest.param({"Authorization": "Bearer "}, "not_authenticated", id="a scheme and a space"),
        pytest.param({"Authorization": KEY[:-1]}, "key_not_valid", id="a character less"),
        pytest.param({"Authorization": f"{KEY}x"}, "key_not_valid", id="a character more"),
        pytest.param({"Authorization": f"{KEY} {KEY}"}, "key_not_valid", id="twice"),
        pytest.param({"Authorization": f"Basic {KEY}"}, "key_not_valid", id="another scheme"),
        pytest.param({"Authorization": f"Bearer Bearer {KEY}"}, "key_not_valid", id="the scheme twice"),
        pytest.param({"Authorization": KEY.replace("m", "м")}, "key_not_valid", id="a letter that looks the same"),
        pytest.param({"Authorization": "\udce9" * 20}, "key_not_valid", id="not a character"),
        pytest.param({"X-Api-Key": KEY}, "not_authenticated", id="in another header"),
    ],
)
def test_header_that_is_no_key_is_refused(manage: ManageApi, headers: dict[str, str], expected: str) -> None:
    answer = manage.call("GET", "groups/", headers=headers)
    assert problem(answer, 401)["code"] == expected
    assert KEY not in answer.content.decode()


def test_a_clients_key_opens_nothing(call: Call, server: Server, now: dt.datetime) -> None:
    _, key = api_keys.create(ClientFactory.create(), tuple(Scope), now)
    for header in (key, f"Bearer {key}"):
        assert problem(call(Authorization=header), 401)["code"] == "key_not_valid"
    assert is_untouched(server)


@pytest.mark.parametrize("header", [{}, {"Authorization": PREVIOUS}], ids=["no key", "the previous key"])
def test_without_a_key_of_its_own_it_is_off(
    call: Call, server: Server, settings: Settings, header: dict[str, str]
) -> None:
    settings.MANAGE_SERVERS_API_AUTH_KEY = ""
    told = problem(call(**header), 503)
    assert told["code"] == "manage_api_off"
    assert "MANAGE_SERVERS_API_AUTH_KEY" in told["detail"]
    assert is_untouched(server)


@pytest.mark.parametrize("header", ["Bearer ", " ", PREVIOUS])
def test_an_empty_previous_key_opens_nothing(manage: ManageApi, settings: Settings, header: str) -> None:
    settings.MANAGE_SERVERS_API_AUTH_KEY_PREVIOUS = ""
    assert problem(manage.call("GET", "groups/", headers={"Authorization": header}), 401)


def test_method_that_is_not_offered_is_not_told_to_a_stranger(manage: ManageApi) -> None:
    assert problem(manage.call("PUT", "groups/", headers={}), 401)
    assert problem(manage.call("PUT", "groups/"), 405)["code"] == "method_not_allowed"


@pytest.mark.parametrize("path", ["", "groups", "groups/1/", "nothing/", "list", "actions/1/"])
def test_other_addresses_are_none(manage: ManageApi, path: str) -> None:
    assert problem(manage.get(path), 404)["code"] == "not_found"


def test_history_tells_which_key_it_was(manage: ManageApi, server: Server) -> None:
    for key, groups in ((KEY, []), (PREVIOUS, [str(server.groups.get().uuid)])):
        manage.key = key
        body(manage.post("groups/assignments/", {"items": [{"uuid": str(server.uuid), "groups": groups}]}))
    told = ServerStatusHistory.objects.order_by("id").values_list("data__by", flat=True)
    assert list(told) == ["manage API", "manage API (previous key)"]


def test_system_check_says_that_it_is_off(settings: Settings) -> None:
    settings.MANAGE_SERVERS_API_AUTH_KEY = ""
    (told,) = check_manage_key()
    assert (told.id, told.is_serious()) == ("servers.W001", False)
    assert "MANAGE_SERVERS_API_AUTH_KEY" in told.msg
    assert told.hint
    settings.MANAGE_SERVERS_API_AUTH_KEY = KEY
    assert check_manage_key() == []
