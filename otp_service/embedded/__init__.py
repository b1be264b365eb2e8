"""PostgreSQL and Valkey out of wheels, for a machine with nothing installed. Importing this starts nothing."""

from __future__ import annotations

from otp_service.embedded.errors import EmbeddedServerError, StartCancelled
from otp_service.embedded.places import default_state_dir
from otp_service.embedded.servers import EmbeddedServers, celery_broker_url, handed_out

__all__ = [
    "EmbeddedServerError",
    "EmbeddedServers",
    "StartCancelled",
    "celery_broker_url",
    "default_state_dir",
    "handed_out",
]
