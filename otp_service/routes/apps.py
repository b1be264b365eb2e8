from django.apps import AppConfig


class RoutesConfig(AppConfig):
    """Ways out: which one a message takes, and what came of it."""

    name = "otp_service.routes"
    label = "routes"

    def ready(self) -> None:
        """Messages, which stand below, explain what waits by the routes that there are."""
        from otp_service.messages import explanation  # noqa: PLC0415 - the models must be loaded first
        from otp_service.routes import table  # noqa: PLC0415 - the same

        explanation.unserved = table.unserved
