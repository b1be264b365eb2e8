"""Neighbours are claimed together: each page needs room for a second version of all its messages, not of some."""

from django.db import migrations

TABLE = "otp_messages_message"


class Migration(migrations.Migration):
    dependencies = [("otp_messages", "0010_attempts_to_ask")]

    operations = [
        migrations.RunSQL(
            sql=f"ALTER TABLE {TABLE} SET (fillfactor = 50)",
            reverse_sql=f"ALTER TABLE {TABLE} SET (fillfactor = 70)",
        )
    ]
