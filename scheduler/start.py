"""What web processes, dispatchers and workers do once, when they start: all of them carry the rules out."""

from __future__ import annotations

import structlog
from django.db import DatabaseError, connections

from otp_service.core.clock import utc_now
from servers.rule_log import record_figures

log = structlog.get_logger(__name__)


def log_rules() -> None:
    """Log the figures of sender health if they have changed. A process starts all the same when that fails."""
    try:
        if record_figures(now=utc_now()):
            log.info("rules_changed")
    except DatabaseError as error:
        log.warning("rules_not_logged", error=type(error).__name__)
    finally:
        connections.close_all()  # a worker's children are forked from it: a connection must not be shared with them
