"""Indexes of tables that may be large and busy."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("servers", "0002_fleet_models_and_columns")]

    operations = [
        AddIndexConcurrently(
            model_name="recipientlink",
            index=models.Index(fields=["delivered_at"], name="link_to_remove"),
        ),
        AddIndexConcurrently(
            model_name="server",
            index=models.Index(
                condition=models.Q(("signed_in", False)), fields=["signed_out_at"], name="server_signed_out"
            ),
        ),
        AddIndexConcurrently(
            model_name="server",
            index=models.Index(
                condition=models.Q(("preheating", True)), fields=["preheat_started_at"], name="server_preheating"
            ),
        ),
        AddIndexConcurrently(
            model_name="server",
            index=models.Index(fields=["handle"], name="server_by_handle"),
        ),
        AddIndexConcurrently(
            model_name="server",
            index=models.Index(
                condition=models.Q(("last_sent_at__isnull", False)), fields=["last_sent_at"], name="server_by_last_send"
            ),
        ),
        AddIndexConcurrently(
            model_name="serverdelivery",
            index=models.Index(fields=["at"], name="delivery_to_remove"),
        ),
        AddIndexConcurrently(
            model_name="internalsend",
            index=models.Index(
                condition=models.Q(("check_at__isnull", False)), fields=["check_at"], name="internal_to_ask"
            ),
        ),
        AddIndexConcurrently(
            model_name="internalsend",
            index=models.Index(fields=["created_at"], name="internal_to_remove"),
        ),
    ]
