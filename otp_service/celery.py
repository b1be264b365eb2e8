"""The Celery application."""

from __future__ import annotations

import os

from celery import Celery
from celery.signals import worker_ready

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "otp_service.settings")

app = Celery("otp_service")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["scheduler"])
app.conf.worker_hijack_root_logger = False  # our logging configuration stays in force


@app.on_after_configure.connect
def _timetable(sender: Celery, **_kwargs: object) -> None:
    from scheduler.beat import TIMETABLE  # noqa: PLC0415 - needs the app to exist

    sender.conf.beat_schedule = TIMETABLE


@worker_ready.connect
def _log_rules(**_kwargs: object) -> None:
    from scheduler.start import log_rules  # noqa: PLC0415 - needs the app to exist

    log_rules()
