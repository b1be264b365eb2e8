"""Databases of the server that DATABASE_URL names, each for one set of figures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg


def make_empty(name: str) -> str:
    """Make a database anew; returns its address."""
    given = os.environ["DATABASE_URL"]
    with psycopg.connect(given, autocommit=True) as server:
        server.execute(f"DROP DATABASE IF EXISTS {name}")
        server.execute(f"CREATE DATABASE {name}")
    return urlunsplit(urlsplit(given)._replace(path=f"/{name}"))


@contextmanager
def using(name: str) -> Iterator[None]:
    """Django works on this database of its server."""
    from django.db import connection

    before = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = name
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = before
