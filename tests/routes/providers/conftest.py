"""What the tests of providers share."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.routes.providers.contract_faults", "tests.routes.providers.contract_receipts")
