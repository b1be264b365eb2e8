"""Removing what has been kept long enough, some of it at a time."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import QuerySet


def remove_batch(old: QuerySet[Any], batch: int) -> int:
    """Remove the first `batch` rows of an ordered queryset; returns how many.

    Rows that somebody holds are passed over, so it waits for nobody and is safe beside itself.
    """
    with transaction.atomic():
        ids = list(old.select_for_update(skip_locked=True).values_list("pk", flat=True)[:batch])
        removed, _ = old.order_by().filter(pk__in=ids).delete()
    return removed
