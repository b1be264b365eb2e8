"""What relay adapters must do. A new adapter subclasses what its protocol promises, and gets every test of it."""

from __future__ import annotations

from tests.servers.relay.contract_faults import FaultsContract
from tests.servers.relay.contract_working import (
    RefusalsContract,
    RepetitionsContract,
    TombstonesContract,
    WorkingHostContract,
)


class BasicRelayContract(WorkingHostContract, FaultsContract):
    """Whatever the protocol.

    Subclasses give `adapter_with`, the fixture `host`, and the tables of their protocol's replies.
    """


class RelayAdapterContract(BasicRelayContract, RepetitionsContract, RefusalsContract, TombstonesContract):
    """With every promise that a protocol can make."""
