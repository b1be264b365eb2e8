"""A preheat that proved nothing has a code of its own, 121: it neither started nor finished."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("servers", "0005_one_internal_send_at_a_time"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="serverstatushistory",
            name="history_event_known",
        ),
        migrations.AlterField(
            model_name="serverstatushistory",
            name="event",
            field=models.PositiveSmallIntegerField(
                choices=[
                    (100, "Cooldown finished 💧"),
                    (101, "Cooldown started 🧊"),
                    (102, "Cooldown extended 🧊⏳"),
                    (104, "Warm-up sent 🧊📨"),
                    (105, "Warm-up confirmed 🧊✅"),
                    (106, "Need Check 🚨"),
                    (107, "Recovered 🩹"),
                    (108, "Marked active ✅"),
                    (109, "Send failed 📉"),
                    (110, "Preheat started 🔥"),
                    (111, "Preheat finished"),
                    (112, "Chat-preheat started 💬"),
                    (113, "Counters reset"),
                    (114, "Groups changed"),
                    (115, "Lost"),
                    (116, "Deleted"),
                    (117, "Disabled"),
                    (118, "Host offline / back"),
                    (119, "Storm brake"),
                    (120, "Signed out / in"),
                    (121, "Preheat unproven"),
                ]
            ),
        ),
        migrations.AddConstraint(
            model_name="serverstatushistory",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "event__in",
                        [
                            100,
                            101,
                            102,
                            104,
                            105,
                            106,
                            107,
                            108,
                            109,
                            110,
                            111,
                            112,
                            113,
                            114,
                            115,
                            116,
                            117,
                            118,
                            119,
                            120,
                            121,
                        ],
                    )
                ),
                name="history_event_known",
            ),
        ),
    ]
