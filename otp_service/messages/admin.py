"""What the admin shows of clients and of their messages: Django looks for it here."""

from otp_service.messages import admin_clients, admin_messages

__all__ = ["admin_clients", "admin_messages"]
