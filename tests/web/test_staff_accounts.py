"""Who may keep staff accounts gives nobody more than they have: not themselves, and not by way of somebody else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.template.loader import get_template
from django.test import Client as Browser
from django.urls import reverse

from otp_service.web.sidebar import SECTIONS
from tests.staff_members import logged_in

pytestmark = pytest.mark.django_db

KEEPER = ("auth.view_user", "auth.change_user", "auth.delete_user", "auth.add_user")
GROUP_KEEPER = ("auth.view_group", "auth.add_group", "auth.change_group", "auth.delete_group")
GIVEN = {"is_staff": "on", "is_superuser": "on"}


@pytest.fixture
def keeper(client: Browser) -> Browser:
    """Staff who may make, edit and delete accounts, and touch staff groups, but are no superuser."""
    return logged_in(client, *KEEPER, *GROUP_KEEPER)


def page(kind: str, user: User) -> str:
    return reverse(f"admin:auth_user_{kind}", args=[user.pk])


def form(user: User, **changes: Any) -> dict[str, Any]:
    """What the form of an account sends."""
    return {"username": user.username, "is_active": "on"} | changes


def grant(user: User, codename: str, *, by_group: bool = False) -> None:
    permission = Permission.objects.get(codename=codename)
    if by_group:
        group = Group.objects.create(name=codename)
        group.permissions.add(permission)
        user.groups.add(group)
    else:
        user.user_permissions.add(permission)


def passwords() -> dict[str, str]:
    return {"password1": "another long password", "password2": "another long password", "usable_password": "true"}


@pytest.mark.parametrize("whom", ["eve", "bob"])
def test_nobody_is_given_more_by_who_is_no_superuser(keeper: Browser, whom: str) -> None:
    User.objects.create_user("bob")
    user, group = User.objects.get(username=whom), Group.objects.create(name="all")
    held = set(user.user_permissions.values_list("pk", flat=True))
    every = list(Permission.objects.values_list("pk", flat=True))
    sent = form(user, first_name="New", groups=[group.pk], user_permissions=every, **GIVEN)
    assert keeper.post(page("change", user), sent).status_code == 302
    after = User.objects.get(username=whom)
    assert (after.first_name, after.is_superuser, after.is_staff) == ("New", False, user.is_staff)
    assert not after.groups.exists()
    assert set(after.user_permissions.values_list("pk", flat=True)) == held


def test_a_superuser_gives_all_of_it(admin_client: Browser) -> None:
    bob, group = User.objects.create_user("bob"), Group.objects.create(name="all")
    one = Permission.objects.get(codename="view_user")
    sent = form(bob, groups=[group.pk], user_permissions=[one.pk], **GIVEN)
    assert admin_client.post(page("change", bob), sent).status_code == 302
    bob.refresh_from_db()
    assert (bob.is_staff, bob.is_superuser) == (True, True)
    assert (list(bob.groups.all()), list(bob.user_permissions.all())) == ([group], [one])


def test_what_somebody_took_from_an_account_meanwhile_stays_taken(admin_client: Browser) -> None:
    bob, group = User.objects.create_user("bob", is_staff=True, is_superuser=True), Group.objects.create(name="all")
    bob.groups.add(group)
    shown = admin_client.get(page("change", bob)).content.decode()
    was = {"initial-is_active": "True", "initial-is_staff": "True", "initial-is_superuser": "True"}
    was |= {"initial-first_name": "", "initial-groups": str(group.pk)}
    for name, value in was.items():
        assert re.search(rf'name="{name}"( value="{value}")?', shown)
    assert bob.password not in shown
    User.objects.filter(pk=bob.pk).update(is_active=False, is_staff=False, is_superuser=False)
    bob.groups.clear()
    sent = form(bob, first_name="New", groups=[group.pk], **GIVEN, **was)
    assert admin_client.post(page("change", bob), sent).status_code == 302
    bob.refresh_from_db()
    assert (bob.first_name, bob.is_active, bob.is_staff, bob.is_superuser) == ("New", False, False, False)
    assert not bob.groups.exists()


def superuser() -> User:
    return User.objects.create_superuser("root")


def idle_superuser() -> User:
    return User.objects.create_superuser("root", is_active=False)


def may_more() -> User:
    user = User.objects.create_user("bob", is_staff=True)
    grant(user, "reveal_message")
    return user


def may_more_by_a_group() -> User:
    user = User.objects.create_user("bob", is_staff=True, is_active=False)
    grant(user, "reveal_message", by_group=True)
    return user


def may_less() -> User:
    user = User.objects.create_user("bob", is_staff=True)
    grant(user, "view_user", by_group=True)
    return user


WHOM = [
    pytest.param(superuser, False, id="a superuser"),
    pytest.param(idle_superuser, False, id="a superuser who is not active"),
    pytest.param(may_more, False, id="somebody who may more"),
    pytest.param(may_more_by_a_group, False, id="somebody who may more by a group"),
    pytest.param(may_less, True, id="somebody who may less"),
]


@pytest.mark.parametrize(("make", "may"), WHOM)
def test_an_account_is_edited_by_who_may_as_much(keeper: Browser, make: Any, may: bool) -> None:
    user = make()
    assert keeper.get(page("change", user)).status_code == 200
    assert keeper.post(page("change", user), form(user, username="taken")).status_code == (302 if may else 403)
    assert User.objects.filter(username="taken").exists() is may


@pytest.mark.parametrize(("make", "may"), WHOM)
def test_a_password_is_set_by_who_may_as_much(keeper: Browser, make: Any, may: bool) -> None:
    user = make()
    address = reverse("admin:auth_user_password_change", args=[user.pk])
    assert keeper.get(address).status_code == (200 if may else 403)
    assert keeper.post(address, passwords() | {"set-password": ""}).status_code == (302 if may else 403)
    user.refresh_from_db()
    assert user.check_password("another long password") is may


@pytest.mark.parametrize(("make", "may"), WHOM)
def test_an_account_is_deleted_by_who_may_as_much(keeper: Browser, make: Any, may: bool) -> None:
    user = make()
    assert keeper.post(page("delete", user), {"post": "yes"}).status_code == (302 if may else 403)
    assert User.objects.filter(pk=user.pk).exists() is not may


@pytest.mark.parametrize(("make", "may"), WHOM)
def test_accounts_are_deleted_together_by_who_may_as_much(keeper: Browser, make: Any, may: bool) -> None:
    user = make()
    chosen = {"action": "delete_selected", "_selected_action": [user.pk], "post": "yes"}
    answer = keeper.post(reverse("admin:auth_user_changelist"), chosen)
    assert answer.status_code == (302 if may else 403)
    assert User.objects.filter(pk=user.pk).exists() is not may


def test_a_superuser_edits_superusers(admin_client: Browser) -> None:
    user = superuser()
    address = reverse("admin:auth_user_password_change", args=[user.pk])
    assert admin_client.post(address, passwords() | {"set-password": ""}).status_code == 302
    assert admin_client.post(page("change", user), form(user, username="other")).status_code == 302


def test_an_account_that_is_added_may_nothing(keeper: Browser) -> None:
    sent = {"username": "new"} | passwords() | GIVEN
    assert keeper.post(reverse("admin:auth_user_add"), sent).status_code == 302
    added = User.objects.get(username="new")
    assert (added.is_staff, added.is_superuser) == (False, False)


def test_staff_groups_are_read_by_staff_and_changed_by_superusers(keeper: Browser) -> None:
    group = Group.objects.create(name="support")
    address = reverse("admin:auth_group_change", args=[group.pk])
    every = list(Permission.objects.values_list("pk", flat=True))
    assert keeper.get(address).status_code == 200
    assert keeper.post(address, {"name": "support", "permissions": every}).status_code == 403
    assert keeper.post(reverse("admin:auth_group_add"), {"name": "x", "permissions": every}).status_code == 403
    assert keeper.post(reverse("admin:auth_group_delete", args=[group.pk]), {"post": "yes"}).status_code == 403
    assert list(Group.objects.values_list("name", flat=True)) == ["support"]
    assert not group.permissions.exists()


def test_a_superuser_changes_staff_groups(admin_client: Browser) -> None:
    one = Permission.objects.get(codename="view_user")
    sent = {"name": "support", "permissions": [one.pk]}
    assert admin_client.post(reverse("admin:auth_group_add"), sent).status_code == 302
    group = Group.objects.get()
    assert list(group.permissions.all()) == [one]
    assert admin_client.post(reverse("admin:auth_group_change", args=[group.pk]), {"name": "x"}).status_code == 302
    assert not group.permissions.exists()


def test_who_is_locked_out_is_told_the_page_as_the_sidebar_calls_it() -> None:
    (title,) = (title for pages in SECTIONS.values() for title, _, model in pages if model == "axes.accessattempt")
    source = Path(str(get_template("staff/locked_out.html").origin)).read_text()  # type: ignore[attr-defined]  # Django's own engine has it
    assert f"“{title}”" in source
