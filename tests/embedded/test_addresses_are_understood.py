"""One address of each server, read by every library that connects to it."""

from __future__ import annotations

import environ
import pytest
import redis
from celery import Celery
from kombu import Connection
from psycopg.conninfo import conninfo_to_dict

from otp_service.embedded import EmbeddedServers, celery_broker_url


@pytest.mark.parametrize(
    ("redis_url", "broker_url"),
    [
        pytest.param(
            "unix:///run/otp/valkey.sock?db=3", "redis+socket:///run/otp/valkey.sock?virtual_host=3", id="socket"
        ),
        pytest.param(
            "unix:///run/otp/valkey.sock", "redis+socket:///run/otp/valkey.sock?virtual_host=0", id="no number"
        ),
        pytest.param(
            "unix:///a%20b/v.sock?db=1", "redis+socket:///a%20b/v.sock?virtual_host=1", id="blank in the path"
        ),
        pytest.param("redis://:secret@host:6379/2", "redis://:secret@host:6379/2", id="TCP"),
        pytest.param("rediss://host/0", "rediss://host/0", id="TLS"),
    ],
)
def test_celery_has_its_own_spelling_of_a_unix_socket(redis_url: str, broker_url: str) -> None:
    assert celery_broker_url(redis_url) == broker_url


def test_redis_and_kombu_reach_the_same_database(shared_servers: EmbeddedServers) -> None:
    url = shared_servers.urls["REDIS_URL"].replace("db=0", "db=5")
    with redis.Redis.from_url(url) as client, Connection(celery_broker_url(url)) as connection:
        queue = connection.SimpleQueue("greetings")
        queue.put("hello")
        assert client.llen("greetings") == 1
        assert queue.get(timeout=5).payload == "hello"
        queue.close()


def test_celery_publishes(shared_servers: EmbeddedServers) -> None:
    app = Celery("probe", set_as_current=False, broker=celery_broker_url(shared_servers.urls["REDIS_URL"]))
    app.send_task("anything", queue="probe")
    with redis.Redis.from_url(shared_servers.urls["REDIS_URL"]) as client:
        assert client.llen("probe") == 1
    app.close()


def test_libpq_and_django_read_the_same_address(shared_servers: EmbeddedServers) -> None:
    url = shared_servers.urls["DATABASE_URL"]
    libpq, django = conninfo_to_dict(url), environ.Env.db_url_config(url)
    assert django["ENGINE"] == "django.db.backends.postgresql"
    assert (django["NAME"], django["USER"]) == (libpq["dbname"], libpq["user"]) == ("otp", "postgres")
    assert django["OPTIONS"]["host"] == libpq["host"]
