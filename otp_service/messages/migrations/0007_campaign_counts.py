"""Each statement that moves messages of campaigns says so in the counts, whoever wrote it.

Nothing is joined: a mover may have forbidden the planner its hash and merge joins.
"""

from django.db import migrations

FUNCTION = """
CREATE FUNCTION otp_messages_count_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO otp_messages_campaigncount (campaign_id, status, n)
  SELECT campaign_id, status, sum(n) FROM (
    SELECT campaign_id, status, 1 AS n FROM newer WHERE campaign_id IS NOT NULL
    UNION ALL
    SELECT campaign_id, status, -1 FROM older WHERE campaign_id IS NOT NULL
  ) moves
  GROUP BY campaign_id, status HAVING sum(n) <> 0;
  RETURN NULL;
END
$$
"""
TRIGGER = """
CREATE TRIGGER message_count_moves AFTER UPDATE ON otp_messages_message
REFERENCING OLD TABLE AS older NEW TABLE AS newer
FOR EACH STATEMENT EXECUTE FUNCTION otp_messages_count_moves()
"""


class Migration(migrations.Migration):
    dependencies = [
        ("otp_messages", "0006_unique_in_campaigns"),
    ]

    operations = [
        migrations.RunSQL(sql=FUNCTION, reverse_sql="DROP FUNCTION otp_messages_count_moves"),
        migrations.RunSQL(sql=TRIGGER, reverse_sql="DROP TRIGGER message_count_moves ON otp_messages_message"),
    ]
