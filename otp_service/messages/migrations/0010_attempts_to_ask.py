"""Attempts without a server are not in the way of those whose host can be asked."""

import django.contrib.postgres.operations
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("otp_messages", "0009_flows_of_otp")]

    operations = [
        django.contrib.postgres.operations.AddIndexConcurrently(
            model_name="attempt",
            index=models.Index(
                condition=models.Q(("check_at__isnull", False), ("server__isnull", False)),
                fields=["check_at"],
                name="attempt_to_ask",
            ),
        ),
        django.contrib.postgres.operations.RemoveIndexConcurrently(model_name="attempt", name="attempt_to_check"),
    ]
