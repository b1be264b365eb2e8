"""What the admin's lists, forms and pages of this app share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.core.exceptions import ObjectDoesNotExist
from django.db import IntegrityError
from django.db.models import Model
from django.forms import ModelForm
from django.http import HttpRequest

from otp_service.core.errors import ServiceError
from otp_service.web.admin import WritesOnlyEdits
from servers.admin.forms import Refusable

_REFUSAL = "servers.refusal"
#: A value that is taken (unique_violation), a row that is gone (foreign_key_violation).
_LOST_RACES = frozenset({"23505", "23503"})
#: Rows that a page or a message names one by one.
NAMED = 50

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shown(Generic[T]):
    """Rows of which a page names the first ones and counts the others."""

    rows: Sequence[T]

    @property
    def count(self) -> int:
        """Of all of them."""
        return len(self.rows)

    @property
    def first(self) -> Sequence[T]:
        """Those that are named."""
        return self.rows[:NAMED]

    @property
    def more(self) -> int:
        """How many are not."""
        return max(len(self.rows) - NAMED, 0)


class SavedByServices(WritesOnlyEdits):
    """Forms that a service carries out. What it refuses stands on the form, and nothing was changed.

    A refusal may come as late as the statement that loses a race: the form's own checks cannot have seen it.
    """

    form = Refusable

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except (ServiceError, ObjectDoesNotExist, IntegrityError) as refusal:
            if request.method != "POST" or not _is_refusal(refusal):
                raise
            # Its transaction is rolled back. Once more, for the page: a form with a refusal is not valid.
            request.META[_REFUSAL] = refusal
            return super().changeform_view(request, object_id, form_url, extra_context)

    def get_form(
        self, request: HttpRequest, obj: Model | None = None, change: bool = False, **kwargs: Any
    ) -> type[ModelForm[Any]]:
        form: type[ModelForm[Any]] = super().get_form(request, obj, change=change, **kwargs)
        if _REFUSAL not in request.META:
            return form
        return type(form.__name__, (form,), {"refusal": request.META[_REFUSAL]})


def _is_refusal(error: Exception) -> bool:
    """Whether a person was refused something, or lost a race. Of the database's own checks, the others are faults."""
    if not isinstance(error, IntegrityError):
        return True
    return getattr(error.__cause__, "sqlstate", None) in _LOST_RACES


def who(request: HttpRequest) -> str:
    """The person who acts, as histories name them."""
    return request.user.get_username()
