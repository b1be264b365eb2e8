"""Answers are JSON, whatever a caller says that it would like."""

from __future__ import annotations

from collections.abc import Iterable

from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class AlwaysJSON(DefaultContentNegotiation):
    """Bodies are judged by their Content-Type; the Accept header is not asked: there is one representation."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        only = next(iter(renderers))
        return only, only.media_type
