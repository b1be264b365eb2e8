"""What the database refuses from now on."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("servers", "0003_fleet_indexes")]

    operations = [
        migrations.AddConstraint(
            model_name="server",
            constraint=models.CheckConstraint(
                condition=models.Q(("signed_in", False), ("signed_out_at__isnull", True), _connector="OR"),
                name="server_signed_out_at_only_signed_out",
            ),
        ),
        migrations.AddConstraint(
            model_name="server",
            constraint=models.CheckConstraint(
                condition=models.Q(("new_recipients_today__gte", 0), ("otp_in_hour__gte", 0), ("sends_today__gte", 0)),
                name="server_sends_not_negative",
            ),
        ),
        migrations.AddConstraint(
            model_name="server",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("preheat_repeats__gte", 0), ("preheating", True)),
                    models.Q(("preheat_asked_at__isnull", True), ("preheat_repeats", 0), ("preheating", False)),
                    _connector="OR",
                ),
                name="server_preheat_asked_only_in_preheat",
            ),
        ),
    ]
