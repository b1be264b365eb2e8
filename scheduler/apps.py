from django.apps import AppConfig


class SchedulerConfig(AppConfig):
    """When things run: the timetable, its tasks, and the dispatcher."""

    name = "scheduler"
