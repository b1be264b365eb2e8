from django.apps import AppConfig


class ServersConfig(AppConfig):
    """Hosts, servers (senders), their groups, health and history."""

    name = "servers"
