"""Devices of staff: an app that shows codes, and recovery codes on paper."""

from __future__ import annotations

import io
from base64 import b32encode, b64encode
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django_otp.models import Device
from django_otp.oath import TOTP
from django_otp.plugins.otp_static.models import StaticDevice, StaticToken
from django_otp.plugins.otp_totp.models import TOTPDevice
from django_otp.qr import write_qrcode_image

_DIGITS = 6
_NAME = "authenticator app"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The code is right, and used up."""

    device: Device


@dataclass(frozen=True, slots=True)
class Wrong:
    """It is no code of this person, or was used before."""


@dataclass(frozen=True, slots=True)
class TooSoon:
    """After wrong codes no other is looked at for a time that doubles."""

    wait: timedelta


def has_app(user: User) -> bool:
    """Whether an app of this person shows codes that we know."""
    return bool(TOTPDevice.objects.filter(user=user, confirmed=True).exists())


def has_codes(user: User) -> bool:
    """Whether a code can be asked for: an app's, or a recovery code that is left."""
    return has_app(user) or StaticToken.objects.filter(device__user=user, device__confirmed=True).exists()


def check(user: User, code: str, *, now: datetime) -> Accepted | Wrong | TooSoon:
    """Look at a code, in the caller's transaction: six digits are an app's, anything else is a recovery code."""
    model: Any = TOTPDevice if code.isdigit() and len(code) == _DIGITS else StaticDevice
    for device in model.objects.filter(user=user, confirmed=True).select_for_update().order_by("pk"):
        allowed, why = device.verify_is_allowed()
        if not allowed:
            return TooSoon(why["locked_until"] - now)
        if device.verify_token(code):
            return Accepted(device)
    return Wrong()


def add_app(user: User, secret: str, code: str, *, now: datetime) -> TOTPDevice | None:
    """The device of an app that shows `code` for `secret` (hex). None if it does not, or there is a device already."""
    totp = TOTP(bytes.fromhex(secret), digits=_DIGITS)
    totp.time = now.timestamp()
    if not totp.verify(int(code), tolerance=1):
        return None
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=user.pk)
        if has_app(user):
            return None
        TOTPDevice.objects.filter(user=user, confirmed=False).delete()
        return TOTPDevice.objects.create(user=user, name=_NAME, key=secret, last_t=totp.t(), drift=totp.drift)


def remove_all(user: User) -> int:
    """Take every device and recovery code from a person; returns how many devices."""
    with transaction.atomic():
        apps, _ = TOTPDevice.objects.filter(user=user).delete()
        _, rows = StaticDevice.objects.filter(user=user).delete()  # their codes are rows too
    return int(apps) + int(rows.get(StaticDevice._meta.label, 0))


def secret_in_letters(secret: str) -> str:
    """The secret as it is typed into an app: base32, in groups of four."""
    letters = b32encode(bytes.fromhex(secret)).decode()
    return " ".join(letters[at : at + 4] for at in range(0, len(letters), 4))


def picture(user: User, secret: str) -> str:
    """A QR code that an app reads the secret from, as the address of an image. It is drawn here, for nobody else."""
    file = io.BytesIO()
    write_qrcode_image(TOTPDevice(user=user, key=secret).config_url, file)
    return f"data:image/svg+xml;base64,{b64encode(file.getvalue()).decode()}"
