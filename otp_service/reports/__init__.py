"""Reports: read-only on everything below; writes only tables of its own."""
