"""An upload is never held in memory: neither all of it, nor a line without an end."""

from __future__ import annotations

import datetime as dt
import io
import tracemalloc
from collections.abc import Iterator

import pytest

from otp_service.messages import campaign_lines, campaign_load
from otp_service.messages.campaign_lines import Fault, Lines
from tests.messages.campaign_calls import LINE, ndjson

MB = 1_048_576


class Endless(io.BytesIO):
    """So many bytes of one line, made as they are read; or of many lines."""

    def __init__(self, size: int, line: bytes) -> None:
        super().__init__()
        self._left, self._line = size, line

    def readline(self, size: int | None = -1, /) -> bytes:
        return self.read(min(size or 0, len(self._line)))

    def read(self, size: int | None = -1, /) -> bytes:
        given = self._line[: min(size or 0, self._left)]
        self._left -= len(given)
        return given


@pytest.fixture
def peak() -> Iterator[list[int]]:
    """Its last element, after the test's work: the most bytes that were held at once."""
    tracemalloc.start()
    yield []
    tracemalloc.stop()


def test_chunks_do_not_pile_up(peak: list[int], now: dt.datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 chunks of 20 lines: an upload of 3 MB, of which the thread that makes chunks is one ahead."""
    monkeypatch.setattr(campaign_load, "CHUNK", 20)
    line = ndjson([{**LINE, "text": "x" * 1_500}])
    lines = Lines(Endless(2_000 * len(line), line), seed="")
    next(iter(chunks := campaign_load._one_ahead(campaign_load._chunks(lines, campaign_lines.ndjson(lines), now))))
    tracemalloc.reset_peak()
    assert sum(len(chunk.rows) for chunk in chunks) == 1_980
    assert tracemalloc.get_traced_memory()[1] < 1 * MB


def test_a_line_without_an_end_is_passed_over(peak: list[int]) -> None:
    lines = Lines(Endless(32 * MB, b"x" * MB), seed="")
    tracemalloc.reset_peak()
    ((number, found),) = campaign_lines.ndjson(lines)
    assert number == 1
    assert isinstance(found, Fault)
    assert found.code == "line_too_long"
    assert lines.offset == 32 * MB
    assert tracemalloc.get_traced_memory()[1] < 4 * MB


def test_what_was_read_before_is_passed_over_in_blocks(peak: list[int]) -> None:
    lines = Lines(Endless(64 * MB, b"x" * MB), seed="")
    tracemalloc.reset_peak()
    lines.skip(to_offset=64 * MB, to_number=7)
    assert (lines.offset, lines.number, lines.is_at_end()) == (64 * MB, 7, True)
    assert tracemalloc.get_traced_memory()[1] < 4 * MB
