"""Events that belong to no client, by their type: who revealed messages, made keys, changed groups."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("events", "0001_initial")]

    operations = [
        AddIndexConcurrently(
            model_name="event",
            index=models.Index(
                condition=models.Q(("client_id__isnull", True)), fields=["type", "-id"], name="event_by_type"
            ),
        ),
    ]
