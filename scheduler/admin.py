"""The timetable, for people: django-celery-beat's tables, as the rest of the admin looks."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django_celery_beat.admin import ClockedScheduleAdmin as BaseClockedScheduleAdmin
from django_celery_beat.admin import CrontabScheduleAdmin as BaseCrontabScheduleAdmin
from django_celery_beat.admin import PeriodicTaskAdmin as BasePeriodicTaskAdmin
from django_celery_beat.admin import PeriodicTaskForm, TaskSelectWidget
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from otp_service.core import strict_json
from otp_service.web.admin import NeverDeleted
from scheduler.beat import TIMETABLE

OURS = (
    "This task is of the service's own timetable. When beat starts it writes task, schedule, arguments and options "
    "anew, and makes the row again if it was deleted. What lasts is whether it is enabled."
)

for _model in (PeriodicTask, IntervalSchedule, CrontabSchedule, SolarSchedule, ClockedSchedule):
    admin.site.unregister(_model)


class _TaskSelect(UnfoldAdminSelectWidget, TaskSelectWidget):  # type: ignore[misc]  # neither has types
    """The tasks that workers know."""


class _Form(PeriodicTaskForm):  # type: ignore[misc]  # it has no types
    """The same fields, as unfold draws them. JSON of another kind than beat expects would end beat, at each start."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "task" in self.fields:  # not for those who may only look
            self.fields["task"].widget = UnfoldAdminTextInputWidget()
            self.fields["regtask"].widget = _TaskSelect()

    def clean_args(self) -> str:
        """A list."""
        return self._json("args", list, "[1, 2]")

    def clean_kwargs(self) -> str:
        """An object."""
        return self._json("kwargs", dict, '{"name": 1}')

    def clean_headers(self) -> str:
        """An object."""
        return self._json("headers", dict, '{"name": "value"}')

    def _json(self, field: str, kind: type, example: str) -> str:
        text: str = self.cleaned_data[field] or example[0] + example[-1]
        try:
            value = strict_json.loads(text.encode(), depth=10, numeral=100)
        except strict_json.StrictJSONError as error:
            raise ValidationError(f"It {error}.") from None
        if not isinstance(value, kind):
            raise ValidationError(f"Write JSON as in {example}.")
        return text


@admin.register(PeriodicTask)
class PeriodicTaskAdmin(BasePeriodicTaskAdmin, ModelAdmin):  # type: ignore[misc]  # neither has types
    """What runs when."""

    form = _Form
    list_before_template = "scheduler/about_the_timetable.html"

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """For those who may change tasks: the actions themselves do not ask."""
        return dict(super().get_actions(request)) if self.has_change_permission(request) else {}

    def get_fieldsets(self, request: HttpRequest, obj: PeriodicTask | None = None) -> list[tuple[str | None, Any]]:
        first, *others = super().get_fieldsets(request, obj)
        if obj is None or obj.name not in TIMETABLE:
            return [first, *others]
        return [(first[0], first[1] | {"description": OURS}), *others]


@admin.register(IntervalSchedule)
class IntervalScheduleAdmin(NeverDeleted):
    """Every so often. As the other schedules it stays: its tasks would go with it."""


@admin.register(CrontabSchedule)
class CrontabScheduleAdmin(BaseCrontabScheduleAdmin, NeverDeleted):  # type: ignore[misc]  # it has no types
    """At times of the day."""

    inlines = ()


@admin.register(SolarSchedule)
class SolarScheduleAdmin(NeverDeleted):
    """By the sun."""


@admin.register(ClockedSchedule)
class ClockedScheduleAdmin(BaseClockedScheduleAdmin, NeverDeleted):  # type: ignore[misc]  # it has no types
    """Once."""

    inlines = ()
