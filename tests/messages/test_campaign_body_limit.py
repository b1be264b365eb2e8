"""The web process takes in large bodies where campaigns are uploaded, and nowhere else."""

from __future__ import annotations

import pytest
from waitress.adjustments import Adjustments

from otp_service.serve import BODY_LIMIT, UPLOADS, parser_class

MB = 1_048_576
LIMIT = 10 * MB
KEY = "Authorization: Bearer otp_abc\r\n"


def is_taken(first_line: str, size: int, header: str = KEY) -> bool:
    """Whether the web process waits for the body that these headers announce."""
    parser = parser_class(LIMIT)(Adjustments(max_request_body_size=BODY_LIMIT))
    parser.received(f"{first_line} HTTP/1.1\r\nHost: x\r\n{header}Content-Length: {size}\r\n\r\n".encode())
    return parser.error is None


@pytest.mark.parametrize(
    ("first_line", "size", "header", "taken"),
    [
        pytest.param(f"POST {UPLOADS}", LIMIT, KEY, True, id="an upload"),
        pytest.param(f"POST {UPLOADS}?name=x", LIMIT, KEY, True, id="an upload with parameters"),
        pytest.param(f"POST {UPLOADS}", LIMIT + 1, KEY, False, id="one that is too large"),
        pytest.param(f"POST {UPLOADS}", LIMIT, "", False, id="one without a key"),
        pytest.param(f"POST {UPLOADS}", LIMIT, "Authorization: Basic eA==\r\n", False, id="one with something else"),
        pytest.param(f"PUT {UPLOADS}", LIMIT, KEY, False, id="another method"),
        pytest.param("POST /api/v1/messages/", BODY_LIMIT, KEY, False, id="a message"),
        pytest.param("POST /api/v1/messages/", BODY_LIMIT - 1, KEY, True, id="a message within the bounds"),
        pytest.param(f"POST {UPLOADS}x", LIMIT, KEY, False, id="another address"),
    ],
)
def test_large_bodies_are_for_campaigns(first_line: str, size: int, header: str, taken: bool) -> None:
    assert is_taken(first_line, size, header) is taken


def test_chunks_without_a_length_are_bounded_too() -> None:
    parser = parser_class(MB)(Adjustments(max_request_body_size=1_000))
    head = f"POST {UPLOADS} HTTP/1.1\r\nHost: x\r\n{KEY}Transfer-Encoding: chunked\r\n\r\n".encode()
    chunk = b"40000\r\n" + b"x" * 0x40000 + b"\r\n"
    assert parser.received(head) == len(head)
    for _ in range(3):
        parser.received(chunk)
        assert parser.error is None
    parser.received(chunk)
    parser.received(chunk)
    assert parser.error is not None
    parser.close()
