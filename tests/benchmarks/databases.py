"""Databases of the server that DATABASE_URL names, each for one set of figures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg


def make_empty(name: str) -> str:
    """Make a database anew; returns its address."""
    remove(name)
    with psycopg.connect(_address("postgres"), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
    return _address(name)


def remove(name: str) -> None:
    """Take a database away, if it is there."""
    with psycopg.connect(_address("postgres"), autocommit=True) as server:
        server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _address(name: str) -> str:
    return urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}"))


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


@contextmanager
def migrated(name: str) -> Iterator[str]:
    """A database with the service's tables, while it is needed; gives its address."""
    from django.core.management import call_command

    address = make_empty(name)
    try:
        with using(name):
            call_command("migrate", verbosity=0)
        yield address
    finally:
        remove(name)
