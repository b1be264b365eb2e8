"""Pages by cursor: newest first, steady while rows are added, and as cheap on the last page as on the first.

A cursor is the id where the next page begins, encrypted: it tells nobody how many rows there are, and one that
was made up is refused.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from otp_service.core.crypto import CryptoError
from otp_service.web.fields import field_cipher
from otp_service.web.strict_fields import StrictCharField, StrictSerializer

DEFAULT_LIMIT = 20
MAX_LIMIT = 100
_PURPOSE = "web.cursor"

_Row = TypeVar("_Row", bound=Model)


class CursorField(StrictCharField):
    """The `next_cursor` of an earlier page, opened to an id."""

    def __init__(self, **kwargs: object) -> None:
        super().__init__(help_text="`next_cursor` of the page before", **kwargs)

    def to_internal_value(self, data: object) -> int:  # type: ignore[override]  # a cursor is text outside, an id inside
        return _opened(super().to_internal_value(data))


class DigitsField(serializers.IntegerField):
    """A whole number in an address: plain digits, so that `1_0`, ` 5`, `5.0` and digits of other scripts are none."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.error_messages["invalid"] = "Write a whole number in the digits 0 to 9."

    def to_internal_value(self, data: Any) -> int:
        if not (isinstance(data, str) and data.isascii() and data.isdigit()):
            self.fail("invalid")
        return int(super().to_internal_value(data))


class PageQuerySerializer(StrictSerializer):
    """What every list may be asked for. Subclasses add their filters."""

    cursor = CursorField(required=False)
    limit = DigitsField(
        required=False, default=DEFAULT_LIMIT, min_value=1, max_value=MAX_LIMIT, help_text="rows on a page"
    )


def page(rows: QuerySet[_Row], *, cursor: int | None, limit: int) -> tuple[list[_Row], str | None]:
    """A page of `rows`, newest first, and the cursor of the next page, or None if this is the last."""
    if cursor is not None:
        rows = rows.filter(pk__lte=cursor)
    found = list(rows.order_by("-pk")[: limit + 1])
    following = _sealed(found[limit].pk) if len(found) > limit else None
    return found[:limit], following


def _sealed(row_id: int) -> str:
    return base64.urlsafe_b64encode(field_cipher().encrypt(str(row_id), field=_PURPOSE)).decode().rstrip("=")


def _opened(cursor: str) -> int:
    try:
        sealed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return int(field_cipher().decrypt(sealed, field=_PURPOSE))
    except (binascii.Error, ValueError, CryptoError):
        raise ValidationError("Use next_cursor of the page before, unchanged.", code="bad_cursor") from None
