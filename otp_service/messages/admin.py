"""What the admin shows of clients, their messages and campaigns: Django looks for it here."""

from otp_service.messages import admin_campaigns, admin_clients, admin_messages

__all__ = ["admin_campaigns", "admin_clients", "admin_messages"]
