"""Flows of otp are found without a look at those of campaigns."""

import django.contrib.postgres.operations
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("otp_messages", "0008_messages_have_room_for_updates")]

    operations = [
        django.contrib.postgres.operations.AddIndexConcurrently(
            model_name="flow",
            index=models.Index(condition=models.Q(("lane", "otp"), ("state", "on")), fields=["id"], name="flow_of_otp"),
        ),
    ]
