"""Which ids the rows of a window of time have, in tables that have no index on their time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, models

#: Rows are given their ids in the order of their times, but for those of long transactions.
SLACK = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Ids:
    """From `first` to `last`, both in it; empty where the last comes before the first."""

    first: int
    last: int


def within(model: type[models.Model], column: str, since: datetime, until: datetime) -> Ids:
    """Ids among which all rows with `since` <= time < `until` are, and few others. Some 60 looks by primary key."""
    return Ids(_first_from(model, column, since - SLACK), _first_from(model, column, until + SLACK) - 1)


def _first_from(model: type[models.Model], column: str, at: datetime) -> int:
    """The smallest id whose time is `at` or later; one more than the greatest where none is."""
    look = f"SELECT id, {column} FROM {model._meta.db_table} WHERE id >= %s ORDER BY id LIMIT 1"  # noqa: S608 - names from the code
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COALESCE(min(id), 1), COALESCE(max(id), 0) + 1 FROM {model._meta.db_table}")  # noqa: S608 - the table's own name
        low, high = cursor.fetchone()
        while low < high:
            middle = (low + high) // 2
            cursor.execute(look, [middle])
            row = cursor.fetchone()
            if row is None or row[1] >= at:
                high = middle
            else:
                low = row[0] + 1
    return int(low)
