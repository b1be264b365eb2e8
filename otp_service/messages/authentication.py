"""Client keys on requests."""

from __future__ import annotations

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from otp_service.core.clock import utc_now
from otp_service.messages import api_keys
from otp_service.web.authentication import Caller, bearer_token


class ApiKeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer otp_<prefix>_<secret>`."""

    def authenticate(self, request: Request) -> tuple[Caller, Caller]:
        try:
            caller = api_keys.caller(bearer_token(request), now=utc_now())
        except api_keys.KeyRefused as refused:
            raise AuthenticationFailed(refused.detail, code=refused.code) from None
        return caller, caller

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="api"'
