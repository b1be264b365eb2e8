"""A reply as it came may echo a text: it is in no repr, and so in no log."""

from __future__ import annotations

from otp_service.core.outcomes import Submission, SubmitResult


def test_raw_reply_is_not_in_the_repr() -> None:
    result = SubmitResult(Submission.REFUSED, provider_message_id="guid-1", raw='{"echo": "Your code is 739184"}')
    assert "739184" not in repr(result)
    assert "guid-1" in repr(result)
