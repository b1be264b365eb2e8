from django.apps import AppConfig


class MessagesConfig(AppConfig):
    """Clients, their keys, and what they asked to have delivered."""

    name = "otp_service.messages"
    label = "otp_messages"  # django.contrib.messages has the plain one
    verbose_name = "Messages"
