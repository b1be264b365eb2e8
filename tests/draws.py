"""Draws that a test decides."""

from __future__ import annotations

import random


class Drawn(random.Random):
    """Whole numbers come in the order given; a number outside its range fails the test."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(0)
        self.numbers = list(numbers)

    def randint(self, a: int, b: int) -> int:
        number = self.numbers.pop(0)
        assert a <= number <= b, f"{number} cannot be drawn from {a}-{b}"
        return number


class Lowest(random.Random):
    """Always the low end of a range."""

    def randint(self, a: int, b: int) -> int:
        return a


class Highest(random.Random):
    """Always the high end of a range."""

    def randint(self, a: int, b: int) -> int:
        return b
