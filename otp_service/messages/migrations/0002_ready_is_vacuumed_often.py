"""`ready` rows live for milliseconds: the table is vacuumed after few of them, and at full speed."""

from django.db import migrations

TABLE = "otp_messages_ready"


class Migration(migrations.Migration):
    dependencies = [("otp_messages", "0001_initial")]

    operations = [
        migrations.RunSQL(
            sql=f"ALTER TABLE {TABLE} SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)",
            reverse_sql=f"ALTER TABLE {TABLE} RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_cost_delay)",
        )
    ]
