"""The log-in's addresses. They stand before the admin's own, whose log-in page they replace."""

from __future__ import annotations

from django.urls import path

from otp_service.staff.log_in import CodePage, NewDevicePage, PasswordPage

app_name = "staff"
urlpatterns = [
    path("login/", PasswordPage.as_view(), name="password"),
    path("login/code/", CodePage.as_view(), name="code"),
    path("login/device/", NewDevicePage.as_view(), name="device"),
]
