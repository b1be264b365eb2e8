"""The WSGI entry point: API, webhooks and admin."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "otp_service.settings")

application = get_wsgi_application()
