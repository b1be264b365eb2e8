"""The contract of receipts: which posts are genuine, and what they say."""

from __future__ import annotations

import logging

import pytest
from structlog.testing import capture_logs

from otp_service.core.outcomes import ErrorClass, ReportedState
from otp_service.routes.providers.base import NotGenuine, Posted, Unreadable
from otp_service.routes.route_rules import RouteSpec
from tests.routes.providers.contract_base import PATIENT, ProviderContractBase, Reported

_ELSEWHERE = "http://127.0.0.1:9"  # receipts are read without a call


class ReceiptsContract(ProviderContractBase):
    """Needs no provider at all."""

    def test_a_genuine_post_is_understood(self, reported: Reported) -> None:
        spec = self.spec_of(_ELSEWHERE)

        receipts = self.provider_with(PATIENT).receipts(spec, self.posted(spec, reported.payload))

        assert list(receipts) == list(reported.receipts)

    def test_a_failure_has_a_class_and_nothing_else_has(self, reported: Reported) -> None:
        spec = self.spec_of(_ELSEWHERE)

        for receipt in self.provider_with(PATIENT).receipts(spec, self.posted(spec, reported.payload)):
            assert (receipt.error_class is not None) is (receipt.state is ReportedState.FAILED)
            assert receipt.error_class is not ErrorClass.TIMEOUT_AFTER_SUBMIT

    def test_a_forged_post_is_not_read(self, reported: Reported) -> None:
        spec = self.spec_of(_ELSEWHERE)
        forged = self.forged(spec, reported.payload)

        read = [name for name, posted in forged.items() if self._is_read(spec, posted)]

        assert forged
        assert read == []

    def test_a_genuine_post_that_makes_no_sense_is_unreadable(self, unreadable: bytes) -> None:
        spec = self.spec_of(_ELSEWHERE)

        with pytest.raises(Unreadable) as raised:
            self.provider_with(PATIENT).receipts(spec, self.posted(spec, unreadable))

        assert str(raised.value).endswith(".")

    def test_reading_receipts_shows_nothing_secret(self, reported: Reported, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        spec = self.spec_of(_ELSEWHERE)
        with capture_logs() as logged:
            posted = self.posted(spec, reported.payload)
            self.provider_with(PATIENT).receipts(spec, posted)

        everything = f"{posted!r} {logged!r} {caplog.text}"
        for secret in ("34600000017", "483920", *spec.credentials.values()):
            assert secret not in everything

    def _is_read(self, spec: RouteSpec, posted: Posted) -> bool:
        try:
            self.provider_with(PATIENT).receipts(spec, posted)
        except NotGenuine:
            return False
        return True
