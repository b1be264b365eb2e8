"""The whole timetable: which task runs when. Beat copies it into django-celery-beat's tables at its start."""

from __future__ import annotations

from typing import Any

#: `expires` is shorter than the period: a tick that nobody took in time is dropped, not piled up.
TIMETABLE: dict[str, dict[str, Any]] = {
    "check_cooldown_servers": {
        "task": "scheduler.tasks.check_cooldown_servers",
        "schedule": 60.0,  # seconds; each run gives every server whose cooldown is over its verdict
        "options": {"expires": 50.0},
    },
    "check_hosts": {
        "task": "scheduler.tasks.check_hosts",
        "schedule": 30.0,
        "options": {"expires": 25.0},
    },
    "remove_old_rows": {
        "task": "scheduler.tasks.remove_old_rows",
        "schedule": 3600.0,
        "options": {"expires": 3000.0},
    },
}
