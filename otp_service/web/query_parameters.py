"""What stands after the ? of an address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework.exceptions import ValidationError
from rest_framework.request import Request


def query_parameters(request: Request) -> Mapping[str, Any]:
    """The query parameters. Raises ValidationError for one that is given more than once."""
    repeated = [name for name, values in request.query_params.lists() if len(values) > 1]
    if repeated:
        raise ValidationError(dict.fromkeys(repeated, "Give it once."), code="repeated")
    return request.query_params.dict()
