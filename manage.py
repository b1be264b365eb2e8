#!/usr/bin/env python
"""Django's command line."""

import os
import sys

#: These start the servers whose addresses the settings want, so they do without the settings.
START_SERVERS = {"up", "smoke"}


def main() -> None:
    """Run the command that was asked for."""
    from django.conf import settings
    from django.core.management import execute_from_command_line

    if START_SERVERS.intersection(sys.argv[1:2]):
        settings.configure(INSTALLED_APPS=["scheduler"])
    else:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "otp_service.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
