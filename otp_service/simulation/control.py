"""The simulator's control API: change behaviours while it plays, and read what was sent."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from otp_service.simulation.behaviours import Behaviour, BehaviourError, behaviour_document, behaviour_from
from otp_service.simulation.fleet import PlayedHost, PlayedUnit
from otp_service.simulation.ledger import Ledger


@dataclass(frozen=True, slots=True)
class ControlEndpoints:
    """The routes under /control/. `behave` and `reset` are the simulator's own."""

    hosts: Mapping[int, PlayedHost]
    ledger: Ledger
    behave: Callable[[PlayedHost, PlayedUnit, Behaviour], None]
    reset: Callable[[], None]

    def routes(self) -> list[web.RouteDef]:
        """What to add to the application."""
        return [
            web.get("/control/ledger", self.read_ledger),
            web.get("/control/units", self.read_units),
            web.put("/control/units/{host:[0-9]{1,9}}/{unit:[0-9]{1,9}}", self.change_unit),
            web.post("/control/reset", self.reset_all),
        ]

    async def read_ledger(self, request: web.Request) -> web.Response:
        """`GET /control/ledger?to=&attempt_id=` → {"sends": […]}"""
        # An unescaped + in a query is a space by the time that it gets here.
        to = request.query.get("to", "").replace(" ", "+")
        try:
            attempt_id = _optional_uuid(request.query.get("attempt_id", ""))
        except ValueError:
            return _bad("`attempt_id` must be a UUID.")
        sends = self.ledger.find(to=to, attempt_id=attempt_id)
        return web.json_response({"sends": [entry.document() for entry in sends]})

    async def read_units(self, _request: web.Request) -> web.Response:
        """`GET /control/units` → {"units": [{"host", "unit", "sent", "behaviour", …}]}"""
        units = [_unit_document(host, unit) for host in self.hosts.values() for unit in host.units.values()]
        return web.json_response({"units": units})

    async def change_unit(self, request: web.Request) -> web.Response:
        """`PUT /control/units/{host}/{unit}` with {"behaviour": name, parameter: value, …}"""
        host = self.hosts.get(int(request.match_info["host"]))
        unit = None if host is None else host.units.get(int(request.match_info["unit"]))
        if host is None or unit is None:
            return _bad("No such host or unit is played here: GET /control/units lists them.", status=404)
        document = _object(await request.read())
        if document is None:
            return _bad('The body must be a JSON object such as {"behaviour": "flaky", "p": 0.5}.')
        try:
            self.behave(host, unit, behaviour_from(document))
        except BehaviourError as error:
            return _bad(str(error))
        return web.json_response(_unit_document(host, unit))

    async def reset_all(self, _request: web.Request) -> web.Response:
        """`POST /control/reset`: everything is forgotten, every unit as at the start."""
        self.reset()
        return web.json_response({})


def _unit_document(host: PlayedHost, unit: PlayedUnit) -> dict[str, object]:
    return {"host": host.number, "unit": unit.value.unit, "sent": unit.sent, **behaviour_document(unit.behaviour)}


def _object(body: bytes) -> dict[str, object] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _optional_uuid(text: str) -> uuid.UUID | None:
    return uuid.UUID(text) if text else None


def _bad(detail: str, status: int = 400) -> web.Response:
    return web.json_response({"code": "bad_control_input", "detail": detail}, status=status)
