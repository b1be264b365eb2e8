"""A browser that uses the log-in as a person does."""

from __future__ import annotations

import re
from base64 import b32decode
from typing import Any

from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.test import Client
from django.urls import reverse
from django_otp.oath import TOTP
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp.models import TOTPDevice

PASSWORD = "correct horse battery"
WRONG = "incorrect horse"
HOME = "/admin/"
PASSWORD_PAGE = "/admin/login/"
CODE_PAGE = "/admin/login/code/"
DEVICE_PAGE = "/admin/login/device/"


class Staff(Client):
    """Checks CSRF as a server does."""

    def __init__(self, address: str = "203.0.113.7", **headers: str) -> None:
        super().__init__(REMOTE_ADDR=address, headers=headers or None)

    def give_password(self, password: str = PASSWORD, name: str = "ops", *, next_url: str = "") -> Any:
        where = f"{PASSWORD_PAGE}?next={next_url}" if next_url else PASSWORD_PAGE
        return self.post(where, {"username": name, "password": password})

    def give_code(self, code: object, page: str = CODE_PAGE) -> Any:
        return self.post(page, {"code": code})

    def is_in(self) -> bool:
        return bool(self.get(HOME).status_code == 200)


def fail(browser: Staff, times: int, name: str = "ops") -> list[int]:
    """Give wrong passwords; the statuses of the answers."""
    return [browser.give_password(WRONG, name).status_code for _ in range(times)]


def app_of(user: User) -> TOTPDevice:
    """An app that shows codes to `user`."""
    return TOTPDevice.objects.create(user=user, name="phone")


def recovery_code_of(user: User, code: str = "abcdefgh") -> str:
    StaticDevice.objects.create(user=user, name="paper").token_set.create(token=code)
    return code


def shown_by(device: TOTPDevice, *, steps: int = 0) -> str:
    """What the app shows now, or so many half minutes from now."""
    return shown_for(device.key, steps=steps)


def shown_for(secret: str, *, steps: int = 0) -> str:
    return f"{TOTP(bytes.fromhex(secret), drift=steps).token():06d}"


def wrong_code(device: TOTPDevice) -> str:
    """Six digits that the app shows at none of the times that are looked at."""
    near = {shown_by(device, steps=steps) for steps in range(-3, 4)}
    return next(code for code in ("000000", "111111", "222222", "333333", "444444") if code not in near)


def secret_on(page: Any) -> str:
    """The secret (hex) that a page shows."""
    found = re.search(r"<code[^>]*>([A-Z2-7 ]+)</code>", page.content.decode())
    assert found is not None
    return b32decode(found[1].replace(" ", "")).hex()


def a_strangers_session() -> str:
    """The key of a session that exists, and that a stranger knows."""
    session = SessionStore()
    session["visited"] = True
    session.create()
    assert session.session_key is not None
    return session.session_key


def every_admin_page() -> list[str]:
    """The address of each page of the admin that needs no row."""
    from django.contrib import admin

    names = [f"admin:{model._meta.app_label}_{model._meta.model_name}" for model in admin.site._registry]
    lists = [reverse(f"{name}_{page}") for name in names for page in ("changelist", "add")]
    return [HOME, "/admin/password_change/", "/admin/jsi18n/", "/admin/search/?s=a", "/admin/autocomplete/", *lists]
