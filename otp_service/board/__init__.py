"""Pages for operators. Nothing imports this package; it may import everything below it."""
