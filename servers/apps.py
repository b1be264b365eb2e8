from django.apps import AppConfig


class ServersConfig(AppConfig):
    """Hosts, servers (senders), their groups, health and history."""

    name = "servers"

    def ready(self) -> None:
        from servers import checks  # noqa: F401, PLC0415 - registers them; the models must be loaded first
