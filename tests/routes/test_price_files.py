"""Files of call records are read line by line, and what is wrong with a line is told by its number."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otp_service.core.outcomes import ReportedState
from otp_service.routes import price_files
from otp_service.routes.price_files import BadLine, Priced, UnreadableFile

HEADER = "id,state,parts,cost,currency"


def read(tmp_path: Path, content: str | bytes) -> list[Priced | BadLine]:
    path = tmp_path / "records.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(price_files.read(path))


def test_a_line_says_what_its_columns_say(tmp_path: Path) -> None:
    content = f"{HEADER}\nSM1,delivered,2,0.0150,EUR\n"
    assert read(tmp_path, content) == [Priced(2, "SM1", ReportedState.DELIVERED, 2, Decimal("0.0150"), "EUR")]


def test_columns_come_in_any_order_among_others(tmp_path: Path) -> None:
    content = "\ufeffCurrency, Cost ,To,ID\r\nusd,-0.0075,+34600000000,SM1\r\n"
    assert read(tmp_path, content) == [Priced(2, "SM1", cost=Decimal("0.0075"), currency="USD")]


def test_empty_cells_say_nothing_and_blank_lines_are_passed_over(tmp_path: Path) -> None:
    assert read(tmp_path, f"{HEADER}\n\n,,,,\nSM1,,,,\n") == [Priced(4, "SM1")]


def test_a_currency_without_a_cost_is_no_cost(tmp_path: Path) -> None:
    assert read(tmp_path, f"{HEADER}\nSM1,,,,EUR\n") == [Priced(2, "SM1")]


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("DELIVRD", ReportedState.DELIVERED),
        ("Undelivered", ReportedState.FAILED),
        ("canceled", ReportedState.NEVER),
        ("teleported", ReportedState.UNKNOWN),
    ],
)
def test_words_of_providers_become_ours(tmp_path: Path, word: str, state: ReportedState) -> None:
    assert read(tmp_path, f"id,state\nSM1,{word}\n") == [Priced(2, "SM1", state)]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("SM1,sent", "columns"),
        (",sent,1,,", "id"),
        ("x" * 201 + ",sent,1,,", "id"),
        ("SM\x001,sent,1,,", "id"),
        ("SM1,,0,,", "parts"),
        ("SM1,,256,,", "parts"),
        ("SM1,,1.5,,", "parts"),
        ("SM1,,,free,EUR", "cost"),
        ("SM1,,,NaN,EUR", "cost"),
        ("SM1,,,sNaN,EUR", "cost"),
        ("SM1,,,1E+9999999,EUR", "cost"),
        ("SM1,,,1000.1,EUR", "cost"),
        ("SM1,,,0.0000000000001,EUR", "cost"),
        ("SM1,,,0.05,", "currency"),
        ("SM1,,,0.05,EURO", "currency"),
        ('SM1,"sent,1,,', "quotes"),
        ("SM1," + "x" * 5_000 + ",1,,", "longer"),
    ],
)
def test_a_bad_line_is_told_and_those_behind_it_are_read(tmp_path: Path, line: str, why: str) -> None:
    bad, good = read(tmp_path, f"{HEADER}\n{line}\nSM2,sent,,,\n")
    assert isinstance(bad, BadLine)
    assert (bad.number, why in bad.why) == (2, True)
    assert good == Priced(3, "SM2", ReportedState.SENT)


def test_a_line_that_is_no_text_is_bad(tmp_path: Path) -> None:
    found = read(tmp_path, b"id\n\xff\nSM2\n")
    assert found == [BadLine(2, "It is not UTF-8."), Priced(3, "SM2")]


def test_the_last_line_may_end_without_a_line_break(tmp_path: Path) -> None:
    assert read(tmp_path, "id\nSM1") == [Priced(2, "SM1")]


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("", "column id"),
        ("sid,state", "column id"),
        ("id,ID", "once each"),
        ("id,cost", "belong together"),
        ("x" * 5_000, "header"),
    ],
    ids=["none", "no id", "two ids", "no currency", "too long"],
)
def test_a_header_that_does_not_say_enough_is_refused(tmp_path: Path, header: str, says: str) -> None:
    with pytest.raises(UnreadableFile, match=says):
        read(tmp_path, f"{header}\nSM1\n")


def test_a_file_that_is_not_there_or_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.csv", tmp_path):
        with pytest.raises(UnreadableFile, match="cannot be read"):
            next(price_files.read(path))


def test_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_files, "MOST_BYTES", 10)
    assert len(read(tmp_path, "id\nSM1\nSM2")) == 2
    with pytest.raises(UnreadableFile, match="split it"):
        read(tmp_path, "id\nSM1\nSM23")


def test_the_number_of_lines_is_bounded_and_those_before_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(price_files, "MOST_LINES", 2)
    path = tmp_path / "records.csv"
    path.write_text("id\nSM1\nSM2\n")
    lines = price_files.read(path)
    assert next(lines) == Priced(2, "SM1")
    with pytest.raises(UnreadableFile, match="split it"):
        next(lines)


@given(content=st.binary(max_size=300))
def test_no_content_is_more_than_lines_that_are_bad(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(f"{HEADER}\n".encode() + content)
    found = list(price_files.read(path))
    numbers = [each.number for each in found]
    assert numbers == sorted(set(numbers))
    assert len(found) <= content.count(b"\n") + 1
