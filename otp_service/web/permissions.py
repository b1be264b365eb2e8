"""Who may call what: the default is nobody, and each view says otherwise."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request


class DenyAll(BasePermission):
    """What a view gets that forgot to say who may call it."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return False
