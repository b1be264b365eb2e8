"""Flows once by client or by campaign, references once in a campaign: indexes that are built beside the traffic."""

from django.db import migrations, models


def unique_index(model_name, constraint, sql):
    """A unique constraint whose index is built without a lock that writers wait for."""
    return migrations.SeparateDatabaseAndState(
        database_operations=[
            migrations.RunSQL(
                sql=f"CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS {constraint.name} ON {sql}",
                reverse_sql=f"DROP INDEX CONCURRENTLY IF EXISTS {constraint.name}",
            )
        ],
        state_operations=[migrations.AddConstraint(model_name=model_name, constraint=constraint)],
    )


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("otp_messages", "0005_campaigns"),
    ]

    operations = [
        unique_index(
            "flow",
            models.UniqueConstraint(
                condition=models.Q(("campaign__isnull", True)),
                fields=("client", "lane", "pools", "channels"),
                name="flow_once_of_client",
            ),
            "otp_messages_flow (client_id, lane, pools, channels) WHERE campaign_id IS NULL",
        ),
        unique_index(
            "flow",
            models.UniqueConstraint(
                condition=models.Q(("campaign__isnull", False)),
                fields=("campaign", "pools", "channels"),
                name="flow_once_of_campaign",
            ),
            "otp_messages_flow (campaign_id, pools, channels) WHERE campaign_id IS NOT NULL",
        ),
        migrations.RemoveConstraint(model_name="flow", name="flow_once"),
        unique_index(
            "message",
            models.UniqueConstraint(
                condition=models.Q(("campaign__isnull", False), models.Q(("reference", ""), _negated=True)),
                fields=("campaign", "reference"),
                name="message_reference_once",
            ),
            "otp_messages_message (campaign_id, reference) WHERE campaign_id IS NOT NULL AND reference <> ''",
        ),
    ]
