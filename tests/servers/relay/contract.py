"""What every relay adapter must do, whatever its protocol. A new adapter subclasses it and gets every test."""

from __future__ import annotations

from tests.servers.relay.contract_faults import FaultsContract
from tests.servers.relay.contract_working import WorkingHostContract


class RelayAdapterContract(WorkingHostContract, FaultsContract):
    """Subclasses give `adapter_with`, the fixture `host`, and the tables of their protocol's replies."""
