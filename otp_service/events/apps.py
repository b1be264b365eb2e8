from django.apps import AppConfig


class EventsConfig(AppConfig):
    """The append-only log of what changed, and the outbox of client webhooks."""

    name = "otp_service.events"
    label = "events"
