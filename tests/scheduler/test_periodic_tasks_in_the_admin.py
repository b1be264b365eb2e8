"""The timetable in the admin: what beat writes anew at its start, and what a person decides for good."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule
from django_celery_beat.schedulers import ModelEntry
from unfold.admin import ModelAdmin

from otp_service.celery import app
from scheduler.admin import OURS
from scheduler.beat import TIMETABLE
from tests.factories import NOON

pytestmark = pytest.mark.django_db

TASKS = "/admin/django_celery_beat/periodictask/"
SCHEDULES: dict[Any, dict[str, Any]] = {
    IntervalSchedule: {"every": 5, "period": IntervalSchedule.SECONDS},
    CrontabSchedule: {},
    SolarSchedule: {"event": "sunset", "latitude": 40, "longitude": -3},
    ClockedSchedule: {"clocked_time": NOON},
}


def start_beat() -> None:
    """What `DatabaseScheduler` does with the timetable at its start, one entry after the other."""
    for name, entry in TIMETABLE.items():
        ModelEntry.from_entry(name, app=app, **entry)


def row(name: str = "watch_hosts") -> PeriodicTask:
    return PeriodicTask.objects.get(name=name)


def page_of(task: PeriodicTask) -> str:
    return f"{TASKS}{task.pk}/change/"


def form_of(browser: Browser, task: PeriodicTask, /, **changed: str) -> dict[str, str]:
    """What the browser sends of a task's form."""
    fields = browser.get(page_of(task)).context["adminform"].form
    values = {name: fields[name].value() for name in fields.fields}
    sent = {name: str(value) for name, value in values.items() if value not in {None, False}}
    return sent | {"start_time_0": "", "start_time_1": "", "expires_0": "", "expires_1": ""} | changed


def queries_of(browser: Browser, address: str) -> int:
    with CaptureQueriesContext(connection) as captured:
        assert browser.get(address).status_code == 200
    return len(captured)


@pytest.mark.parametrize("model", [PeriodicTask, *SCHEDULES])
def test_they_look_as_the_rest_of_the_admin(model: Any) -> None:
    assert isinstance(admin.site._registry[model], ModelAdmin)


def test_list_takes_as_many_queries_for_many_tasks_as_for_one(admin_client: Browser) -> None:
    ModelEntry.from_entry("watch_hosts", app=app, **TIMETABLE["watch_hosts"])
    queries_of(admin_client, TASKS)  # fills caches
    few = queries_of(admin_client, TASKS)
    start_beat()
    assert queries_of(admin_client, TASKS) == few


@pytest.mark.parametrize("model", SCHEDULES)
def test_pages_of_schedules_open_and_take_as_many_queries_for_many_tasks(admin_client: Browser, model: Any) -> None:
    schedule = model.objects.create(**SCHEDULES[model])
    name = model._meta.model_name
    field = name.removesuffix("schedule")
    pages = [
        reverse(f"admin:django_celery_beat_{name}_changelist"),
        reverse(f"admin:django_celery_beat_{name}_change", args=[schedule.pk]),
    ]
    _, few = ([queries_of(admin_client, page) for page in pages] for _ in range(2))  # the first time fills caches
    for number in range(5):
        task = PeriodicTask(name=f"task {number}", task="t", one_off=True, **{field: schedule})
        task.save()
    assert [queries_of(admin_client, page) for page in pages] == few
    assert admin_client.get(reverse(f"admin:django_celery_beat_{name}_add")).status_code == 200
    delete = reverse(f"admin:django_celery_beat_{name}_delete", args=[schedule.pk])
    assert admin_client.post(delete, {"post": "yes"}).status_code == 403
    assert PeriodicTask.objects.count() == 5


def test_page_of_a_task_of_the_timetable_says_that_beat_writes_it_anew(admin_client: Browser) -> None:
    start_beat()
    other = PeriodicTask.objects.create(name="ours", task="t", interval=row().interval)
    assert OURS in admin_client.get(page_of(row())).content.decode()
    assert OURS not in admin_client.get(page_of(other)).content.decode()
    assert "is written anew when beat starts" in admin_client.get(TASKS).content.decode()


@pytest.mark.parametrize("is_enabled", [True, False])
def test_beat_keeps_whether_a_task_is_enabled(admin_client: Browser, is_enabled: bool) -> None:
    start_beat()
    PeriodicTask.objects.update(enabled=not is_enabled)
    form = form_of(admin_client, row(), enabled="on" if is_enabled else "")
    assert admin_client.post(page_of(row()), form).status_code == 302
    assert row().enabled is is_enabled
    start_beat()
    assert row().enabled is is_enabled


def test_beat_writes_everything_else_of_the_timetable_anew(admin_client: Browser) -> None:
    start_beat()
    before = {"task": row().task, "interval": row().interval_id, "args": row().args, "queue": row().queue}
    slow = IntervalSchedule.objects.create(every=9, period=IntervalSchedule.DAYS)
    form = form_of(admin_client, row(), task="another", regtask="", interval=str(slow.pk), args="[1]", queue="q")
    assert admin_client.post(page_of(row()), form).status_code == 302
    assert row().task == "another"
    start_beat()
    assert {"task": row().task, "interval": row().interval_id, "args": row().args, "queue": row().queue} == before


def test_beat_makes_a_deleted_task_again() -> None:
    start_beat()
    row().delete()
    start_beat()
    assert row().enabled


@pytest.mark.parametrize("name", ["disable_tasks", "toggle_tasks", "run_tasks"])
def test_actions_are_for_those_who_may_change_tasks(client: Browser, admin_client: Browser, name: str) -> None:
    start_beat()
    viewer = User.objects.create_user("eve", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_periodictask"))
    client.force_login(viewer)
    chosen = {"action": name, "_selected_action": str(row().pk)}
    client.post(TASKS, chosen)
    assert row().enabled
    assert client.get(page_of(row())).status_code == 200
    if name != "run_tasks":
        admin_client.post(TASKS, chosen)
        assert not row().enabled


@pytest.mark.parametrize(
    ("field", "text"),
    [("args", "{}"), ("args", "not json"), ("kwargs", "[1]"), ("kwargs", "1"), ("headers", "1"), ("headers", "[]")],
)
def test_json_that_beat_would_end_at_is_refused(admin_client: Browser, field: str, text: str) -> None:
    start_beat()
    task = row()
    answer = admin_client.post(page_of(task), form_of(admin_client, task, **{field: text}))
    assert answer.context["adminform"].form.errors.keys() == {field}
    ModelEntry(row(), app=app)  # what beat does with each row, and would end at


@pytest.mark.parametrize(("field", "text"), [("args", "[1]"), ("kwargs", '{"a": 1}'), ("headers", '{"a": "b"}')])
def test_json_that_beat_reads_is_kept(admin_client: Browser, field: str, text: str) -> None:
    start_beat()
    task = row()
    assert admin_client.post(page_of(task), form_of(admin_client, task, **{field: text})).status_code == 302
    assert getattr(row(), field) == text
