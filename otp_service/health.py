"""Whether this process lives, and whether the service can work."""

from __future__ import annotations

from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from otp_service.core.clock import utc_now
from otp_service.web.methods import allow_methods
from otp_service.web.problems import problem
from servers import selection


@csrf_exempt  # or a POST would be told of a token that is missing
@allow_methods("GET", "HEAD")
def live(_request: HttpRequest) -> HttpResponse:
    """The process answers."""
    return JsonResponse({"status": "ok"})


@csrf_exempt  # or a POST would be told of a token that is missing
@allow_methods("GET", "HEAD")
def ready(_request: HttpRequest) -> HttpResponse:
    """200 when the database answers and its tables are those of this code; 503 otherwise.

    `servers_that_may_send` and `why_not` (servers by the reason that holds them) are for people and scripts:
    a fleet that rests does not make the service unready to accept.
    """
    try:
        pending = _pending_migrations()
        now = utc_now()
        may_send, why_not = selection.may_send(now=now), selection.why_not(now=now)
    except (DatabaseError, InterfaceError) as error:
        return problem(503, "not_ready", "The database does not answer.", error=type(error).__name__)
    if pending:
        return problem(503, "not_ready", "The database's tables are not those of this code: run `manage.py migrate`.")
    return JsonResponse({"status": "ok", "servers_that_may_send": may_send, "why_not": why_not})


def _pending_migrations() -> bool:
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
