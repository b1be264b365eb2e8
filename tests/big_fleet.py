"""A fleet of the size of production, made by a few statements."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.db import connection

from servers.models import Server, ServerStatusHistory
from servers.rules import Event, Status
from tests.factories import GroupFactory, HostFactory

SERVERS, HISTORY_ROWS = 1_100, 100_000
HOSTS, GROUPS = 22, 7

_SERVERS = f"""
INSERT INTO {Server._meta.db_table}
  (uuid, region, unit, host_id, status, name, handle, signed_in, failed_in_row, cooldown, cooldown_times,
   cooldown_start_date, cooldown_end_date, cooldown_reason, cooldown_warmup_delivered, cooldown_extensions,
   fail_open_streak, preheating, next_send_date, tie)
SELECT gen_random_uuid(), (ARRAY['es', 'pt', 'ua', 'us'])[1 + n %% 4], 50000 + n,
       (%(hosts)s::bigint[])[1 + n %% {HOSTS}],
       CASE WHEN n %% 10 = 9 THEN 'need_check' ELSE 'active' END, '', '+3460' || lpad(n::text, 7, '0'), true,
       n %% 2, n %% 10 = 3, n %% 4,
       CASE WHEN n %% 10 = 3 THEN %(now)s - interval '30 min' END,
       CASE WHEN n %% 10 = 3 THEN %(now)s + interval '60 min' END, '', false, 0, 0, false, %(now)s, random()
FROM generate_series(1, %(servers)s) AS n
"""
_MEMBERS = f"""
INSERT INTO {Server.groups.through._meta.db_table} (server_id, group_id)
SELECT id, (%(groups)s::bigint[])[1 + unit %% {GROUPS}] FROM {Server._meta.db_table} WHERE unit %% 3 > 0
"""
_HISTORY = f"""
INSERT INTO {ServerStatusHistory._meta.db_table} (server_id, event, at, note, data)
SELECT server.id, %(event)s, %(now)s - n * interval '7 min', 'code 120', '{{}}'
FROM {Server._meta.db_table} server, generate_series(1, %(rows)s / %(servers)s + 1) AS n
LIMIT %(rows)s
"""


def build(*, now: dt.datetime, servers: int = SERVERS, history_rows: int = HISTORY_ROWS) -> None:
    """Make servers, every tenth in cooldown and every tenth in Need Check, in groups, with history.

    Their units are far from those of the factories.
    """
    parameters: dict[str, Any] = {
        "now": now,
        "servers": servers,
        "rows": history_rows,
        "event": Event.SEND_FAILED.value,
        "hosts": [host.pk for host in HostFactory.create_batch(HOSTS)],
        "groups": [group.pk for group in GroupFactory.create_batch(GROUPS)],
    }
    with connection.cursor() as cursor:
        for statement in (_SERVERS, _MEMBERS, _HISTORY):
            cursor.execute(statement, parameters)
    assert Server.objects.filter(status=Status.NEED_CHECK).exists()
