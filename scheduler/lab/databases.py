"""Databases of the lab's own, on the server that DATABASE_URL names; the product's tables are never touched."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

#: What their names begin with. One that was left behind by a kill -9 may be dropped.
PREFIX = "otp_lab_"
_CONNECT_TIMEOUT_S = 5


@asynccontextmanager
async def own_database(server_url: str, *, template_url: str = "", prefix: str = PREFIX) -> AsyncIterator[str]:
    """A new database, empty or a copy of that at `template_url`, on which nobody may be; yields its address.

    It is dropped at the end, whoever is on it. Raises psycopg.Error.
    """
    name = f"{prefix}{uuid.uuid4().hex[:12]}"
    create = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
    if template_url:
        create += sql.SQL(" TEMPLATE {}").format(sql.Identifier(urlsplit(template_url).path.removeprefix("/")))
    try:
        await _execute(server_url, create)
        yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    finally:
        await _execute(server_url, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


async def _execute(server_url: str, statement: sql.Composed) -> None:
    server = await psycopg.AsyncConnection.connect(server_url, autocommit=True, connect_timeout=_CONNECT_TIMEOUT_S)
    async with server:
        await server.execute(statement)
