"""Campaigns; flows by channels, campaign and weight. Flows and messages that are there belong to no campaign."""

import uuid

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.text
import django.db.models.lookups
from django.db import migrations, models

STATUSES = ["queued", "waiting", "sending", "submitted", "delivered", "failed", "expired", "cancelled"]
FLOW_STATES = ["on", "paused", "cancelled"]


class Migration(migrations.Migration):
    dependencies = [
        ("otp_messages", "0004_attempt_of_server"),
    ]

    operations = [
        migrations.CreateModel(
            name="Campaign",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("uuid", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("name", models.CharField(blank=True, max_length=100)),
                ("key", models.CharField(help_text="the Idempotency-Key of its upload", max_length=255)),
                ("form", models.CharField(choices=[("ndjson", "Ndjson"), ("csv", "Csv")], max_length=8)),
                (
                    "weight",
                    models.PositiveSmallIntegerField(default=1, help_text="its share beside other promo traffic"),
                ),
                (
                    "starts",
                    models.BooleanField(default=True, help_text="whether it is sent as soon as its upload is whole"),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("loading", "Loading"),
                            ("running", "Running"),
                            ("paused", "Paused"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="loading",
                        max_length=16,
                    ),
                ),
                (
                    "fingerprint",
                    models.BinaryField(help_text="keyed hash of what was read: no number in clear", max_length=32),
                ),
                ("bytes_read", models.BigIntegerField(default=0)),
                ("lines_read", models.BigIntegerField(default=0)),
                ("accepted", models.BigIntegerField(default=0)),
                ("refused", models.BigIntegerField(default=0)),
                ("created_at", models.DateTimeField()),
                ("loaded_at", models.DateTimeField(blank=True, help_text="when its upload was whole", null=True)),
                (
                    "client",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="campaigns",
                        to="otp_messages.client",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("client", "key"), name="campaign_key_once"),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["loading", "running", "paused", "cancelled"])),
                        name="campaign_state_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("form__in", ["ndjson", "csv"])), name="campaign_form_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("loaded_at__isnull", True), ("state", "loading")),
                            models.Q(("loaded_at__isnull", False), ("state__in", ["running", "paused"])),
                            ("state", "cancelled"),
                            _connector="OR",
                        ),
                        name="campaign_runs_when_it_is_whole",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("weight__gte", 1), ("weight__lte", 100)), name="campaign_weight_bounded"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("accepted__gte", 0),
                            (
                                "lines_read__gte",
                                django.db.models.expressions.CombinedExpression(
                                    models.F("accepted"), "+", models.F("refused")
                                ),
                            ),
                            ("refused__gte", 0),
                        ),
                        name="campaign_lines_add_up",
                    ),
                    models.CheckConstraint(
                        condition=django.db.models.lookups.Exact(
                            django.db.models.functions.text.Length("fingerprint"), 32
                        ),
                        name="campaign_fingerprint_is_32_bytes",
                    ),
                ],
                "indexes": [models.Index(fields=["client", "-id"], name="campaign_of_client")],
            },
        ),
        migrations.CreateModel(
            name="CampaignCount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("status", models.CharField(choices=[(status, status) for status in STATUSES], max_length=16)),
                ("n", models.BigIntegerField()),
                (
                    "campaign",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="counts",
                        to="otp_messages.campaign",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="CampaignRefusal",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("line", models.BigIntegerField(help_text="the first line of the upload is 1")),
                ("field", models.CharField(blank=True, max_length=64)),
                ("code", models.CharField(max_length=64)),
                ("detail", models.CharField(max_length=500)),
                (
                    "campaign",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="refusals",
                        to="otp_messages.campaign",
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("campaign", "line"), name="campaign_refusal_once")],
            },
        ),
        migrations.AddField(
            model_name="flow",
            name="channels",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=16),
                db_default=models.Value(["imessage", "sms"]),
                help_text="kinds of ways out, the preferred one first",
                size=None,
            ),
        ),
        migrations.AddField(
            model_name="flow",
            name="weight",
            field=models.PositiveSmallIntegerField(
                db_default=1, default=1, help_text="its share beside others of its lane"
            ),
        ),
        migrations.AddField(
            model_name="flow",
            name="campaign",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="flows",
                to="otp_messages.campaign",
            ),
        ),
        migrations.AddField(
            model_name="message",
            name="campaign",
            field=models.ForeignKey(
                blank=True,
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="otp_messages.campaign",
            ),
        ),
        # To widen a varchar rewrites nothing.
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    sql="ALTER TABLE otp_messages_flow ALTER state TYPE varchar(16)",
                    reverse_sql="ALTER TABLE otp_messages_flow ALTER state TYPE varchar(8)",
                )
            ],
            state_operations=[
                migrations.AlterField(
                    model_name="flow",
                    name="state",
                    field=models.CharField(
                        choices=[("on", "On"), ("paused", "Paused"), ("cancelled", "Cancelled")],
                        default="on",
                        max_length=16,
                    ),
                )
            ],
        ),
        migrations.RemoveConstraint(model_name="flow", name="flow_state_known"),
        migrations.AddConstraint(
            model_name="flow",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", FLOW_STATES)), name="flow_is_in_a_state"
            ),
        ),
        migrations.AddConstraint(
            model_name="flow",
            constraint=models.CheckConstraint(condition=models.Q(("weight__gte", 1)), name="flow_has_weight"),
        ),
    ]
