from django.apps import AppConfig


class RoutesConfig(AppConfig):
    """Ways out: which one a message takes, and what came of it."""

    name = "otp_service.routes"
    label = "routes"
