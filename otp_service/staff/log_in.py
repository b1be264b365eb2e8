"""The pages of the log-in: password; with STAFF_TOTP, a code, or first a device that shows codes."""

from __future__ import annotations

import math
from typing import Any

import structlog
from axes.handlers.proxy import AxesProxyHandler
from django.conf import settings
from django.contrib import admin
from django.contrib.auth import login
from django.contrib.auth.signals import user_login_failed
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.generic import FormView
from django_otp.models import Device
from unfold.forms import AuthenticationForm

from otp_service.core.clock import utc_now
from otp_service.staff import devices, pending
from otp_service.staff.forms import CodeForm, NewDeviceForm
from otp_service.staff.lock_out import busy, one_at_a_time

log = structlog.get_logger(__name__)


def code_is_required() -> bool:
    """Whether a password alone opens nothing."""
    return bool(settings.STAFF_TOTP == "required")


class PasswordPage(LoginView):
    """User name and password."""

    template_name = "admin/login.html"
    authentication_form = AuthenticationForm

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if admin.site.has_permission(request):
            return redirect("admin:index")
        return super().get(request, *args, **kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        with one_at_a_time(request) as alone:
            return super().post(request, *args, **kwargs) if alone else busy(request)

    def form_valid(self, form: Any) -> HttpResponse:
        """Log in, or go on to the code. Until it is given nobody is logged in, so nothing is open."""
        if not code_is_required():
            return super().form_valid(form)
        pending.begin(self.request, form.get_user(), self.get_success_url(), now=utc_now())
        return redirect("staff:code")

    def get_default_redirect_url(self) -> str:
        return reverse("admin:index")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {
            **super().get_context_data(**kwargs),
            **admin.site.each_context(self.request),
            "title": "Log in",
            "subtitle": None,
            "app_path": self.request.get_full_path(),
            "username": self.request.user.get_username(),
        }


@method_decorator([never_cache, sensitive_post_parameters()], name="dispatch")
class _SecondPage(FormView):  # type: ignore[type-arg]  # only the stubs take a parameter
    """What follows the password; whoever has given none, or too long ago, begins anew."""

    title: str
    waiting: pending.Pending

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        waiting = pending.current(request, now=utc_now()) if code_is_required() else None
        if waiting is None:
            return redirect("admin:login")
        page = CodePage if devices.has_codes(waiting.user) and not waiting.proved else NewDevicePage
        if not isinstance(self, page):
            return redirect("staff:code" if page is CodePage else "staff:device")
        self.waiting = waiting
        return super().dispatch(request, *args, **kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        with one_at_a_time(request) as alone:
            return super().post(request, *args, **kwargs) if alone else busy(request)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs), **admin.site.each_context(self.request), "title": self.title}

    def _log_in(self, device: Device) -> HttpResponseRedirect:
        pending.end(self.request)
        user: Any = self.waiting.user
        user.otp_device = device  # django-otp writes it into the session, when the user is logged in
        login(self.request, user, self.waiting.backend)
        return HttpResponseRedirect(self.waiting.next_url)


class CodePage(_SecondPage):
    """The code that the app shows, or a recovery code."""

    template_name = "staff/code.html"
    form_class = CodeForm
    title = "Enter a code"

    def form_valid(self, form: CodeForm) -> HttpResponse:
        request: Any = self.request
        credentials = {"username": self.waiting.user.get_username()}
        if not AxesProxyHandler.is_allowed(request, credentials):
            request.axes_locked_out, request.axes_credentials = True, credentials
            return HttpResponse()  # the middleware of axes says when to try again
        match devices.check(self.waiting.user, form.cleaned_data["code"], now=utc_now()):
            case devices.Accepted(device):
                return self._accept(device)
            case devices.TooSoon(wait):
                seconds = max(1, math.ceil(wait.total_seconds()))
                form.add_error("code", f"Too many wrong codes: wait {seconds} s, and enter the one that is shown then.")
            case devices.Wrong():
                user_login_failed.send(sender=__name__, credentials=credentials, request=request)
                form.add_error("code", "This code is not right, or was used before: enter the next one.")
        return self.form_invalid(form)

    def _accept(self, device: Device) -> HttpResponse:
        if devices.has_app(self.waiting.user):
            return self._log_in(device)
        pending.prove(self.request)
        return redirect("staff:device")


class NewDevicePage(_SecondPage):
    """The secret for an app, and the first code that the app shows: the proof that it has it."""

    template_name = "staff/device.html"
    form_class = NewDeviceForm
    title = "Set up an authenticator app"

    def form_valid(self, form: NewDeviceForm) -> HttpResponse:
        user = self.waiting.user
        device = devices.add_app(user, self.waiting.secret, form.cleaned_data["code"], now=utc_now())
        if device is None:
            form.add_error(
                "code", "This is not the code of this secret: check the clock of the phone, and enter the next one."
            )
            return self.form_invalid(form)
        log.info("staff_device_added", user=user.pk)
        return self._log_in(device)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        secret = self.waiting.secret
        return {
            **super().get_context_data(**kwargs),
            "picture": devices.picture(self.waiting.user, secret),
            "secret": devices.secret_in_letters(secret),
        }
