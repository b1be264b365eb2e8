#!/usr/bin/env python
"""Django's command line."""

import os
import sys


def main() -> None:
    """Run the command that was asked for."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "otp_service.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
