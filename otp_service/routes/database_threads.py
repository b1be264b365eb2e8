"""Threads of an asyncio process that talk to the database, each over a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import DatabaseError, InterfaceError, OperationalError, connection

T = TypeVar("T")


class DatabaseThreads:
    """Threads with a database connection each; a connection that failed is closed and made anew."""

    def __init__(self, name: str, number: int = 1) -> None:
        self._threads = [ThreadPoolExecutor(1, thread_name_prefix=f"{name}-{each}") for each in range(number)]
        self._idle: asyncio.Queue[ThreadPoolExecutor] = asyncio.Queue()
        for thread in self._threads:
            self._idle.put_nowait(thread)

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` on one of them, as soon as one has nothing else to do."""
        thread = await self._idle.get()
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, _guarded, work)
        finally:
            self._idle.put_nowait(thread)

    def close(self) -> None:
        """Close the connections and end the threads."""
        for thread in self._threads:
            thread.submit(lambda: connection.close())  # noqa: PLW0108 - looked up in that thread: it is its own
            thread.shutdown(wait=True)


def _guarded(work: Callable[[], T]) -> T:
    try:
        return work()
    except DatabaseError:
        connection.close_if_unusable_or_obsolete()
        raise
    except InterfaceError:
        connection.close()
        raise


def is_transient(error: Exception) -> bool:
    """Whether the database may say otherwise later: away, restarting, or a deadlock's victim."""
    return isinstance(error, OperationalError | InterfaceError)
