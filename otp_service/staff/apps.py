from django.apps import AppConfig


class StaffConfig(AppConfig):
    """How staff log in: lock-out, codes of a device, sessions."""

    name = "otp_service.staff"
    label = "staff"
