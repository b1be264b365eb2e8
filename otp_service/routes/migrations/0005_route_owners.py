from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("routes", "0004_breakers"),
    ]

    operations = [
        migrations.CreateModel(
            name="RouteOwner",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("route", models.CharField(help_text="the route's name", max_length=64, unique=True)),
                ("dispatcher", models.UUIDField(help_text="its id")),
                ("until", models.DateTimeField()),
                ("is_up", models.BooleanField(help_text="whether a bind was up when it last said so")),
                (
                    "detail",
                    models.CharField(blank=True, help_text="what it last said of its binds", max_length=200),
                ),
            ],
        ),
    ]
