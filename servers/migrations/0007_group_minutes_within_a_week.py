"""No group makes a server wait longer than a week: longer pauses could not be added to a time."""

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("servers", "0006_preheat_unproven_event"),
    ]

    operations = [
        migrations.AlterField(
            model_name="group",
            name="cooldown_delay_from",
            field=models.PositiveIntegerField(
                default=0,
                help_text="minutes; 0: the ladder applies",
                validators=[django.core.validators.MaxValueValidator(10080)],
            ),
        ),
        migrations.AlterField(
            model_name="group",
            name="cooldown_delay_to",
            field=models.PositiveIntegerField(
                default=0,
                help_text="minutes; 0: the ladder applies",
                validators=[django.core.validators.MaxValueValidator(10080)],
            ),
        ),
        migrations.AlterField(
            model_name="group",
            name="send_from_message_interval",
            field=models.PositiveIntegerField(
                default=0,
                help_text="minutes; 0: the default",
                validators=[django.core.validators.MaxValueValidator(10080)],
            ),
        ),
        migrations.AlterField(
            model_name="group",
            name="send_to_message_interval",
            field=models.PositiveIntegerField(
                default=0,
                help_text="minutes; 0: the default",
                validators=[django.core.validators.MaxValueValidator(10080)],
            ),
        ),
        migrations.AddConstraint(
            model_name="group",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("cooldown_delay_from__lte", 10080),
                    ("cooldown_delay_to__lte", 10080),
                    ("send_from_message_interval__lte", 10080),
                    ("send_to_message_interval__lte", 10080),
                ),
                name="group_minutes_within_a_week",
            ),
        ),
    ]
