"""Which methods a plain Django view offers; DRF's views say it themselves."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.http import HttpRequest, HttpResponse

from otp_service.web.problems import problem

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def allow_methods(*methods: str) -> Callable[[View[P]], View[P]]:
    """Answer every other method with 405, a problem document, and the methods that there are."""

    def decorate(view: View[P]) -> View[P]:
        @wraps(view)
        def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            if request.method in methods:
                return view(request, *args, **kwargs)
            return problem(
                405,
                "method_not_allowed",
                f"{request.method} is not offered here: use {' or '.join(methods)}.",
                headers={"Allow": ", ".join(methods)},
            )

        return guarded

    return decorate
