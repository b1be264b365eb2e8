"""What every view of the manage API shares: who may call, who is told to have called, where a 404 comes from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.http import Http404
from rest_framework.request import Request
from rest_framework.views import APIView

from otp_service.web.negotiation import AlwaysJSON
from servers.api.authentication import HasManageKey, ManageKey, ManageKeyAuthentication
from servers.models import Group, Server

MAX_BULK_BODY = 1_048_576  # bytes; of the calls that take up to MAX_ITEMS items


class ManageView(APIView):
    """For whoever has the manage API's key."""

    authentication_classes = [ManageKeyAuthentication]
    content_negotiation_class = AlwaysJSON
    permission_classes = [HasManageKey]


def by(request: Request) -> str:
    """Who calls, in the words of history."""
    assert isinstance(request.auth, ManageKey)
    return request.auth.value


@contextmanager
def missing_is_404() -> Iterator[None]:
    """A group or a server that does not exist."""
    try:
        yield
    except (Group.DoesNotExist, Server.DoesNotExist):
        raise Http404 from None
