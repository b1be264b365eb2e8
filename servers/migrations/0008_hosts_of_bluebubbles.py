"""A relay host may be a BlueBubbles server."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("servers", "0007_group_minutes_within_a_week"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="host",
            name="host_protocol_known",
        ),
        migrations.AlterField(
            model_name="host",
            name="protocol",
            field=models.CharField(
                choices=[("native", "Native"), ("bluebubbles", "BlueBubbles")],
                default="native",
                help_text="what it speaks; a BlueBubbles server has one account, whose unit has the host's number",
                max_length=16,
            ),
        ),
        migrations.AddConstraint(
            model_name="host",
            constraint=models.CheckConstraint(
                condition=models.Q(("protocol__in", ["native", "bluebubbles"])),
                name="host_protocol_known",
            ),
        ),
    ]
