"""The lab's own databases: made, and dropped whatever happens."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import psycopg
import pytest
from django.conf import settings

from scheduler.lab.databases import own_database


def exists(database_url: str) -> bool:
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as server:
        name = urlsplit(database_url).path.removeprefix("/")
        return server.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is not None


async def test_makes_an_empty_one_and_drops_it() -> None:
    async with own_database(settings.DATABASE_URL) as url:
        assert exists(url)
    assert not exists(url)


async def test_makes_a_copy() -> None:
    async with own_database(settings.DATABASE_URL) as template_url:
        with psycopg.connect(template_url, autocommit=True) as template:
            template.execute("CREATE TABLE drawn (n int)")
        async with own_database(settings.DATABASE_URL, template_url=template_url) as url:
            with psycopg.connect(url) as copy:
                assert copy.execute("SELECT count(*) FROM drawn").fetchone() == (0,)


async def test_drops_it_while_somebody_is_on_it() -> None:
    async with own_database(settings.DATABASE_URL) as url:
        left = psycopg.connect(url)
    assert not exists(url)
    left.close()


async def test_drops_it_after_an_end_from_outside() -> None:
    made: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def hold() -> None:
        async with own_database(settings.DATABASE_URL) as url:
            made.set_result(url)
            await asyncio.Event().wait()

    holding = asyncio.create_task(hold())
    url = await asyncio.wait_for(made, 20)
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding
    assert not exists(url)
