"""Logs: one structured line per event, JSON in production and readable text in a local run.

Events carry ids. A text, a code, a key or a full number is never handed to a logger.
"""

from __future__ import annotations

import logging
import logging.config
from typing import Any

import structlog

_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]
#: One list: loggers keep the one that they saw first, and a test that captures events empties it in place.
_PROCESSORS: list[Any] = [*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter]


def logging_config(level: str, fmt: str) -> None:
    """Send everything that is logged, ours and the libraries', through one formatter to standard error.

    `fmt` is `json` or `text`.
    """
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if fmt == "json"
        else structlog.dev.ConsoleRenderer(
            colors=False, pad_event_to=32, exception_formatter=structlog.dev.plain_traceback
        )
    )
    processors: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if fmt == "json":
        processors.append(structlog.processors.format_exc_info)
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "structured": {
                    "()": structlog.stdlib.ProcessorFormatter,
                    "foreign_pre_chain": _SHARED,
                    "processors": [*processors, renderer],
                }
            },
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "structured"}},
            "root": {"handlers": ["stderr"], "level": level},
            "loggers": {
                "aiohttp.access": {"level": "WARNING"},
                "django.request": {"level": "ERROR"},  # refusals are answered, not logged one by one
                # Also refusals, such as of a foreign Host header: any stranger could write a traceback per request.
                # At DEBUG it writes what pages show, and what was typed into forms.
                "django.template": {"level": "INFO"},
                "django.security": {"level": "CRITICAL"},
                "django.security.csrf": {"level": "WARNING"},  # one line; names an origin that is not trusted
            },
        }
    )
    structlog.configure(
        processors=_PROCESSORS,
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
