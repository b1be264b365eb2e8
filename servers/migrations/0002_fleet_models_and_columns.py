"""Chats, storms and the times of sweeps; what a server was given, and what it waits for."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("servers", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="ChatPreheat",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("planned", models.PositiveSmallIntegerField(help_text="messages, of both together")),
                ("made", models.PositiveSmallIntegerField(default=0)),
                ("awaited", models.BooleanField(default=False)),
                ("due_at", models.DateTimeField(blank=True, null=True)),
                ("started_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("finished", "Finished"),
                            ("sms", "Sms"),
                            ("failed", "Failed"),
                            ("unanswered", "Unanswered"),
                            ("stopped", "Stopped"),
                        ],
                        max_length=16,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="StormBrake",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("scope", models.CharField(choices=[("host", "Host"), ("region", "Region")], max_length=8)),
                ("name", models.CharField(help_text="the host's number, or the region", max_length=20)),
                ("mode", models.CharField(help_text="STORM_BRAKE when it began: shadow changes nothing", max_length=8)),
                ("share", models.FloatField(help_text="the largest share so far of those that sent")),
                ("on_at", models.DateTimeField()),
                ("calm_since", models.DateTimeField(blank=True, null=True)),
                ("off_at", models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name="SweepTime",
            fields=[
                ("name", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("next_at", models.DateTimeField()),
                ("last_at", models.DateTimeField(blank=True, help_text="when it last began", null=True)),
            ],
        ),
        migrations.AddField(
            model_name="host",
            name="offline_since",
            field=models.DateTimeField(blank=True, help_text="written by the watch over silent hosts", null=True),
        ),
        migrations.AddField(
            model_name="internalsend",
            name="check_at",
            field=models.DateTimeField(blank=True, help_text="when its host is asked about it", null=True),
        ),
        migrations.AddField(
            model_name="server",
            name="last_sent_at",
            field=models.DateTimeField(blank=True, help_text="when it was last given a client message", null=True),
        ),
        migrations.AddField(
            model_name="server",
            name="new_recipients_today",
            field=models.IntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="server",
            name="otp_hour",
            field=models.DateTimeField(blank=True, help_text="the hour (UTC) that the next one counts", null=True),
        ),
        migrations.AddField(
            model_name="server",
            name="otp_in_hour",
            field=models.IntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="server",
            name="preheat_asked_at",
            field=models.DateTimeField(blank=True, help_text="when a person was asked to decide", null=True),
        ),
        migrations.AddField(
            model_name="server",
            name="preheat_repeats",
            field=models.SmallIntegerField(db_default=0, default=0, help_text="of the plan's last day"),
        ),
        migrations.AddField(
            model_name="server",
            name="sends_day",
            field=models.DateField(blank=True, help_text="the day (UTC) that the next two count", null=True),
        ),
        migrations.AddField(
            model_name="server",
            name="sends_today",
            field=models.IntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="server",
            name="signed_out_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AlterField(
            model_name="server",
            name="next_send_date",
            field=models.DateTimeField(
                db_default=django.db.models.functions.datetime.Now(), help_text="no client message before this time"
            ),
        ),
        migrations.AddField(
            model_name="chatpreheat",
            name="partner",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="chats_as_partner", to="servers.server"
            ),
        ),
        migrations.AddField(
            model_name="chatpreheat",
            name="server",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="chats", to="servers.server"
            ),
        ),
        migrations.AddField(
            model_name="internalsend",
            name="chat",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="sends",
                to="servers.chatpreheat",
            ),
        ),
        migrations.AddIndex(
            model_name="stormbrake",
            index=models.Index(fields=["on_at"], name="storm_by_time"),
        ),
        migrations.AddConstraint(
            model_name="stormbrake",
            constraint=models.UniqueConstraint(
                condition=models.Q(("off_at__isnull", True)), fields=("scope", "name"), name="storm_one_a_scope"
            ),
        ),
        migrations.AddConstraint(
            model_name="stormbrake",
            constraint=models.CheckConstraint(
                condition=models.Q(("scope__in", ["host", "region"])), name="storm_scope_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="stormbrake",
            constraint=models.CheckConstraint(
                condition=models.Q(("mode__in", ["shadow", "enforce"])), name="storm_mode_known"
            ),
        ),
        migrations.AddIndex(
            model_name="chatpreheat",
            index=models.Index(condition=models.Q(("ended_at__isnull", True)), fields=["due_at"], name="chat_due"),
        ),
        migrations.AddConstraint(
            model_name="chatpreheat",
            constraint=models.UniqueConstraint(
                condition=models.Q(("ended_at__isnull", True)), fields=("server",), name="chat_one_of_server"
            ),
        ),
        migrations.AddConstraint(
            model_name="chatpreheat",
            constraint=models.CheckConstraint(
                condition=models.Q(("server", models.F("partner")), _negated=True), name="chat_not_with_itself"
            ),
        ),
        migrations.AddConstraint(
            model_name="chatpreheat",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("due_at__isnull", False), ("ended_at__isnull", True), ("outcome", "")),
                    models.Q(
                        ("awaited", False),
                        ("due_at__isnull", True),
                        ("ended_at__isnull", False),
                        ("outcome__in", ["finished", "sms", "failed", "unanswered", "stopped"]),
                    ),
                    _connector="OR",
                ),
                name="chat_ended_iff_outcome",
            ),
        ),
        migrations.AddConstraint(
            model_name="chatpreheat",
            constraint=models.CheckConstraint(
                condition=models.Q(("made__lte", models.F("planned"))), name="chat_not_longer_than_planned"
            ),
        ),
    ]
