"""What every provider that is spoken to by HTTP must do. A new one subclasses it and gets every test."""

from __future__ import annotations

from tests.routes.providers.contract_faults import FaultsContract
from tests.routes.providers.contract_receipts import ReceiptsContract


class ProviderContract(FaultsContract, ReceiptsContract):
    """Subclasses give the hooks and the tables of `ProviderContractBase`."""
