"""Benchmarks: each prints its figure beside that of a peer in the same run, and their ratio. Nothing is asserted."""
