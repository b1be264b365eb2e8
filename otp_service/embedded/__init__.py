"""PostgreSQL and Valkey out of wheels, for a machine with nothing installed. Importing this starts nothing."""

from __future__ import annotations

from otp_service.embedded.errors import EmbeddedServerError, StartCancelledError
from otp_service.embedded.places import default_state_dir
from otp_service.embedded.servers import EmbeddedServers, celery_broker_url, temporary_servers

__all__ = [
    "EmbeddedServerError",
    "EmbeddedServers",
    "StartCancelledError",
    "celery_broker_url",
    "default_state_dir",
    "temporary_servers",
]
