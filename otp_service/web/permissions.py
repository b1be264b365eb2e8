"""Who may call what: the default is nobody, and each view says otherwise."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from otp_service.web.authentication import Caller


class DenyAll(BasePermission):
    """What a view gets that forgot to say who may call it."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return False


class HasScope(BasePermission):
    """Callers whose key has the view's `required_scope`."""

    code = "scope_missing"

    def has_permission(self, request: Request, view: Any) -> bool:
        self.message = f"This needs a key with the scope {view.required_scope}."
        return isinstance(request.auth, Caller) and view.required_scope in request.auth.scopes
