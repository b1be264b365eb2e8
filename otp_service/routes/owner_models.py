"""Who holds the binds of an SMPP route: what several dispatchers go by, and so not in Redis."""

from __future__ import annotations

from django.db import models

#: Characters.
LONGEST_DETAIL = 200


class RouteOwner(models.Model):
    """The dispatcher that holds the binds of one route, for as long as `until` is to come by the database's clock."""

    route = models.CharField(max_length=64, unique=True, help_text="the route's name")
    dispatcher = models.UUIDField(help_text="its id")
    until = models.DateTimeField()
    is_up = models.BooleanField(help_text="whether a bind was up when it last said so")
    detail = models.CharField(max_length=LONGEST_DETAIL, blank=True, help_text="what it last said of its binds")

    def __str__(self) -> str:
        return self.route
