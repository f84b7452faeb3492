"""Externs by index: counters, meters, registers. A program's access past the end does nothing (and reads 0);
the controller's is refused with OUT_OF_RANGE.
"""

from __future__ import annotations

from .errors import ControlError, Problem
from .meters import GREEN, Meter, checked
from .values import CounterData, MeterConfig, MeterCounts


def check_index(kind: str, name: str, index: int, size: int) -> None:
    """Raises OUT_OF_RANGE unless 0 <= index < size."""
    if not 0 <= index < size:
        raise ControlError(Problem.OUT_OF_RANGE, f"{kind} {name} has {size} cells, there is no cell {index}")


class CounterArray:
    """`counter(size, type)`: packets and bytes, each in its list. Generated code adds to the lists itself."""

    __slots__ = ("bytes", "name", "packets", "size")

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.packets = [0] * size
        self.bytes = [0] * size

    def count(self, index: int, length: int) -> None:
        """Counts one packet of `length` bytes."""
        if 0 <= index < self.size:
            self.packets[index] += 1
            self.bytes[index] += length

    def read(self, index: int) -> CounterData:
        check_index("counter", self.name, index, self.size)
        return CounterData(self.packets[index], self.bytes[index])

    def read_all(self) -> list[CounterData]:
        return [CounterData(*cell) for cell in zip(self.packets, self.bytes, strict=True)]

    def write(self, index: int | None, data: CounterData) -> None:
        """Writes a cell; index None: all cells."""
        if index is None:
            self.packets[:] = [data.packets] * self.size
            self.bytes[:] = [data.bytes] * self.size
            return
        check_index("counter", self.name, index, self.size)
        self.packets[index], self.bytes[index] = data.packets, data.bytes


class MeterArray:
    """`meter(size, type)`: a marker per cell, made when it is first configured or executed."""

    __slots__ = ("by_bytes", "cells", "name", "size")

    def __init__(self, name: str, size: int, by_bytes: bool) -> None:
        self.name = name
        self.size = size
        self.by_bytes = by_bytes
        self.cells: dict[int, Meter] = {}

    def execute(self, index: int, length: int, now: float) -> int:
        """Returns the colour; green if the cell is not configured or does not exist."""
        cell = self.cells.get(index)
        if cell is None:
            if not 0 <= index < self.size:
                return GREEN
            cell = self.cells[index] = Meter()
        return cell.execute(length if self.by_bytes else 1, length, now)

    def read(self, index: int) -> MeterConfig | None:
        check_index("meter", self.name, index, self.size)
        cell = self.cells.get(index)
        return cell.config if cell is not None else None

    def read_all(self) -> list[MeterConfig | None]:
        return [self.read(index) for index in range(self.size)]

    def write(self, index: int | None, config: MeterConfig | None, now: float = 0.0) -> None:
        checked(config)
        if index is not None:
            check_index("meter", self.name, index, self.size)
        if config is None:
            for cell in list(self.cells) if index is None else filter(self.cells.__contains__, [index]):
                self.cells[cell].configure(None, now)
            return
        for cell in (index,) if index is not None else range(self.size):
            self.cells.setdefault(cell, Meter()).configure(config, now)

    def counts(self, index: int) -> MeterCounts:
        """Returns the packets that the cell has marked, by colour."""
        check_index("meter", self.name, index, self.size)
        cell = self.cells.get(index)
        return cell.counts() if cell is not None else MeterCounts()

    def set_counts(self, index: int, counts: MeterCounts) -> None:
        check_index("meter", self.name, index, self.size)
        if index in self.cells or counts != MeterCounts():
            self.cells.setdefault(index, Meter()).set_counts(counts)


class RegisterArray:
    """`register<T>(size)`: a list of numbers, as the program sees them (signed for int<W>)."""

    __slots__ = ("cells", "name", "signed", "size", "width")

    def __init__(self, name: str, size: int, width: int, signed: bool) -> None:
        self.name = name
        self.size = size
        self.width = width
        self.signed = signed
        self.cells = [0] * size

    def get(self, index: int) -> int:
        """Returns the program's read of a cell; 0 past the end."""
        return self.cells[index] if 0 <= index < self.size else 0

    def put(self, index: int, value: int) -> None:
        """Writes a cell for the program; does nothing past the end."""
        if 0 <= index < self.size:
            self.cells[index] = value

    def read(self, index: int) -> int:
        """Returns raw bits, for the controller."""
        check_index("register", self.name, index, self.size)
        return self.cells[index] & ((1 << self.width) - 1)

    def read_all(self) -> list[int]:
        return [self.read(index) for index in range(self.size)]

    def write(self, index: int | None, value: int) -> None:
        if value < 0 or value >> self.width:
            raise ControlError(Problem.INVALID, f"{value} does not fit into {self.width} bits of {self.name}")
        if index is not None:
            check_index("register", self.name, index, self.size)
        if self.signed and value >> (self.width - 1):
            value -= 1 << self.width
        if index is None:
            self.cells[:] = [value] * self.size
        else:
            self.cells[index] = value
