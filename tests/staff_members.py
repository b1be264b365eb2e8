"""Staff with the permissions that a test gives, and no others."""

from __future__ import annotations

from django.contrib.auth.models import Permission, User
from django.test import Client


def logged_in(browser: Client, *permissions: str) -> Client:
    """The browser of somebody who may do this: `app_label.codename` each."""
    user = User.objects.create(username="eve", is_staff=True)
    browser.force_login(user)
    allow(*permissions)
    return browser


def allow(*permissions: str) -> None:
    """Give the one user that there is these permissions too."""
    user = User.objects.get()
    for permission in permissions:
        app_label, _, codename = permission.partition(".")
        user.user_permissions.add(Permission.objects.get(codename=codename, content_type__app_label=app_label))
