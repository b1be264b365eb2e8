"""The one base of errors that people outside may see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ServiceError(Exception):
    """A refusal with a stable code, a sentence that says what to do, and figures.

    `otp_service.web.problems` maps it to HTTP; nothing else does. `status` is the HTTP status that
    fits; `data` goes into the problem document as it is, so it never holds a secret or a full number.
    """

    status = 400
    code = "bad_request"
    title = "The request cannot be carried out"

    def __init__(self, detail: str, *, code: str = "", status: int = 0, **data: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or self.code
        self.status = status or self.status
        self.data: Mapping[str, Any] = data
