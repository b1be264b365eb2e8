"""The manage API's routes: a person's verdicts. Views read the clock; services do the work."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from otp_service.core.clock import utc_now
from otp_service.routes import breakers
from otp_service.routes.breaker_rules import BreakerState
from otp_service.web.openapi import manage_problems
from otp_service.web.strict_fields import StrictSerializer
from servers.api.fields import ReasonField
from servers.api.view import ManageView, by


class RouteVerdictSerializer(StrictSerializer):
    """A person's verdict on a route."""

    reason = ReasonField(help_text="why; it stands in the events")


class RouteStateSerializer(serializers.Serializer[Any]):
    """How a route's breaker stands."""

    route = serializers.CharField()
    state = serializers.ChoiceField([BreakerState.ISOLATED.value, BreakerState.CLOSED.value])
    changed = serializers.BooleanField(help_text="whether it is otherwise than before")


# Made once: a serializer that is used by `run_validation` alone keeps nothing of a request.
_VERDICT = RouteVerdictSerializer()
_PROBLEMS = manage_problems(400, 404, 413, 415)


def _reason(request: Request) -> str:
    return str(_VERDICT.run_validation(request.data)["reason"])


def _answer(route: str, state: BreakerState, *, changed: bool) -> Response:
    return Response({"route": route, "state": state.value, "changed": changed})


class IsolateRouteView(ManageView):
    """A route is shut off."""

    @extend_schema(
        operation_id="isolate_route",
        summary="Shut a route off",
        request=RouteVerdictSerializer,
        responses={200: RouteStateSerializer, **_PROBLEMS},
        examples=[OpenApiExample("No money left", {"reason": "the account has no balance"}, request_only=True)],
        tags=["routes"],
    )
    def post(self, request: Request, route_name: str) -> Response:
        """Shuts a route off until it is enabled: nothing goes over it, whatever its breaker would say."""
        changed = breakers.isolate(route_name, by=by(request), reason=_reason(request), now=utc_now())
        return _answer(route_name, BreakerState.ISOLATED, changed=changed)


class EnableRouteView(ManageView):
    """A route is used again."""

    @extend_schema(
        operation_id="enable_route",
        summary="Use a route again",
        request=RouteVerdictSerializer,
        responses={200: RouteStateSerializer, **_PROBLEMS},
        examples=[OpenApiExample("Paid", {"reason": "the account is paid"}, request_only=True)],
        tags=["routes"],
    )
    def post(self, request: Request, route_name: str) -> Response:
        """Lets everything go over a route at once, whatever shut it off: a person, or its breaker."""
        changed = breakers.enable(route_name, by=by(request), reason=_reason(request), now=utc_now())
        return _answer(route_name, BreakerState.CLOSED, changed=changed)
