"""A message is updated a few times soon after it was written: new pages leave room for that, so that its indexes stay."""

from django.db import migrations

TABLE = "otp_messages_message"


class Migration(migrations.Migration):
    dependencies = [("otp_messages", "0007_campaign_counts")]

    operations = [
        migrations.RunSQL(
            sql=f"ALTER TABLE {TABLE} SET (fillfactor = 70)",
            reverse_sql=f"ALTER TABLE {TABLE} RESET (fillfactor)",
        )
    ]
