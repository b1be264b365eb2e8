"""The page of a server, with what joins it to its messages."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse

from otp_service.board import server_page
from otp_service.core.clock import utc_now
from servers.admin import ServerAdmin
from servers.models import Server

admin.site.unregister(Server)


@admin.register(Server)
class ServerWithItsWeekAdmin(ServerAdmin):
    """How the server is, why, what comes next, its last 7 days: above the form."""

    change_form_before_template = "board/server.html"

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], **form: Any) -> HttpResponse:
        shown = form.get("obj")
        if shown is not None:
            # Read anew: a form that was refused leaves on it what was typed.
            server = Server.objects.select_related("host").get(pk=shown.pk)
            may_see = request.user.has_perm
            context["server_page"] = server_page.of(
                server,
                now=utc_now(),
                with_messages=may_see("otp_messages.view_message"),
                with_history=may_see("servers.view_serverstatushistory"),
            )
        answer: HttpResponse = super().render_change_form(request, context, **form)
        return answer
