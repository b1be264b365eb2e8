"""What the tests of adapters share."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.servers.relay.contract_working", "tests.servers.relay.contract_faults")
