from django.apps import AppConfig


class InboundConfig(AppConfig):
    """What relay hosts post to us."""

    name = "webhooks.inbound"
    label = "webhooks_inbound"
