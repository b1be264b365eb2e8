from django.apps import AppConfig


class BoardConfig(AppConfig):
    """Pages for operators: they join servers with messages, which know nothing of each other."""

    name = "otp_service.board"
    label = "board"
