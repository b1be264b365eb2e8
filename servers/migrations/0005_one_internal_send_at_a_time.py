"""One internal send of a kind is on its way to a host at a time: a constraint, without a lock on the table."""

from django.db import migrations, models

_CREATE = """
CREATE UNIQUE INDEX CONCURRENTLY "internal_one_submitting"
ON "servers_internalsend" ("sender_id", "kind") WHERE "state" = 'submitting'
"""
_DROP = 'DROP INDEX CONCURRENTLY "internal_one_submitting"'


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("servers", "0004_fleet_constraints")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(_CREATE, _DROP)],
            state_operations=[
                migrations.AddConstraint(
                    model_name="internalsend",
                    constraint=models.UniqueConstraint(
                        condition=models.Q(("state", "submitting")),
                        fields=("sender", "kind"),
                        name="internal_one_submitting",
                    ),
                ),
            ],
        ),
    ]
