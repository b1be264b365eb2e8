from django.apps import AppConfig


class WebConfig(AppConfig):
    """What DRF needs once, and model fields that encrypt."""

    name = "otp_service.web"
    label = "web"
