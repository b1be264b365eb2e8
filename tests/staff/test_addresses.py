"""Which address tries are counted under."""

from __future__ import annotations

import pytest

from otp_service.staff.addresses import client_address

V6 = "2001:db8:1:2:3:4:5:6"


@pytest.mark.parametrize(
    ("remote", "forwarded", "behind_proxy", "counted"),
    [
        pytest.param("203.0.113.7", "", False, "203.0.113.7", id="the peer's"),
        pytest.param("203.0.113.7", "9.9.9.9", False, "203.0.113.7", id="not a stranger's header"),
        pytest.param("10.0.0.1", "9.9.9.9", True, "9.9.9.9", id="what the proxy saw"),
        pytest.param("10.0.0.1", "8.8.8.8, 9.9.9.9", True, "9.9.9.9", id="the last of several"),
        pytest.param("10.0.0.1", "8.8.8.8,9.9.9.9 ", True, "9.9.9.9", id="spaces"),
        pytest.param("10.0.0.1", "", True, "10.0.0.1", id="a proxy that says nothing"),
        pytest.param("10.0.0.1", "9.9.9.9, unknown", True, "10.0.0.1", id="a proxy that says nonsense"),
        pytest.param("10.0.0.1", "9.9.9.9,", True, "10.0.0.1", id="nothing after the comma"),
        pytest.param(V6, "", False, "2001:db8:1:2::", id="the first half of IPv6"),
        pytest.param("10.0.0.1", V6, True, "2001:db8:1:2::", id="of IPv6 through a proxy"),
        pytest.param("::ffff:203.0.113.7", "", False, "203.0.113.7", id="IPv4 in IPv6"),
        pytest.param("fe80::1%eth0", "", False, "fe80::", id="with a zone"),
        pytest.param("", "", False, None, id="none"),
        pytest.param("localhost", "", True, None, id="a socket's"),
        pytest.param("9" * 10_000, "9" * 10_000, True, None, id="long"),
    ],
)
def test_counted_under(remote: str, forwarded: str, behind_proxy: bool, counted: str | None) -> None:
    assert client_address(remote, forwarded, behind_proxy=behind_proxy) == counted
