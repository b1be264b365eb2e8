"""The newest attempts of a server, for its page: found by an index that the foreign key's own one could not serve."""

import django.contrib.postgres.operations
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("otp_messages", "0003_reveal_permission"),
    ]

    operations = [
        django.contrib.postgres.operations.AddIndexConcurrently(
            model_name="attempt",
            index=models.Index(
                condition=models.Q(("server__isnull", False)), fields=["server", "-id"], name="attempt_of_server"
            ),
        ),
        migrations.AlterField(
            model_name="attempt",
            name="server",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="servers.server",
            ),
        ),
    ]
