"""What the admin shows of clients, their messages and campaigns, and recipients: Django looks for it here."""

from otp_service.messages import admin_campaigns, admin_clients, admin_messages, admin_recipients

__all__ = ["admin_campaigns", "admin_clients", "admin_messages", "admin_recipients"]
