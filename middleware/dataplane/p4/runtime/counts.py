"""Counters of a running switch. Generated code increments them directly."""

from __future__ import annotations

import msgspec

from .tables import TableState


class TableStats(msgspec.Struct, frozen=True, gc=False):
    """Look-ups of one table, with their outcome."""

    hits: int = 0
    misses: int = 0


class PortStats(msgspec.Struct, frozen=True, gc=False):
    """Packets and bytes that came in and went out at one port, the CPU port included."""

    packets_in: int = 0
    bytes_in: int = 0
    packets_out: int = 0
    bytes_out: int = 0


class Stats(msgspec.Struct, frozen=True):
    """A reading. `ingress_passes` counts runs of parser and ingress, `egress_passes` runs of egress: a packet
    that is recirculated twice makes three of each, a packet multicast to four ports one and four. `clones`
    and `replicas` are copies made, `drops` are by reason, `parser_errors` by the error's name."""

    ingress_passes: int
    egress_passes: int
    recirculations: int
    resubmissions: int
    clones: int
    replicas: int
    digests: int
    tables: dict[str, TableStats]
    ports: dict[int, PortStats]
    drops: dict[str, int]
    parser_errors: dict[str, int]


class PortCount:
    """Packets and bytes of one port."""

    __slots__ = ("bytes_in", "bytes_out", "packets_in", "packets_out")

    def __init__(self) -> None:
        self.packets_in = 0
        self.bytes_in = 0
        self.packets_out = 0
        self.bytes_out = 0


class Counts:
    """See `stats.Stats`."""

    __slots__ = (
        "clones",
        "digests",
        "drops",
        "egress_passes",
        "ingress_passes",
        "parser_errors",
        "recirculations",
        "replicas",
        "resubmissions",
    )

    def __init__(self) -> None:
        self.ingress_passes = 0
        self.egress_passes = 0
        self.recirculations = 0
        self.resubmissions = 0
        self.clones = 0
        self.replicas = 0
        self.digests = 0
        self.drops: dict[str, int] = {}
        self.parser_errors: dict[int, int] = {}  # by index into Program.errors

    def drop(self, reason: str, count: int = 1) -> None:
        self.drops[reason] = self.drops.get(reason, 0) + count

    def parser_error(self, error: int) -> None:
        self.parser_errors[error] = self.parser_errors.get(error, 0) + 1

    def read(self, tables: list[TableState], ports: dict[int, PortCount], errors: tuple[str, ...]) -> Stats:
        """Returns a reading."""
        return Stats(
            ingress_passes=self.ingress_passes,
            egress_passes=self.egress_passes,
            recirculations=self.recirculations,
            resubmissions=self.resubmissions,
            clones=self.clones,
            replicas=self.replicas,
            digests=self.digests,
            tables={t.shape.name: TableStats(t.match.hits, t.match.misses) for t in tables},
            ports={
                n: PortStats(c.packets_in, c.bytes_in, c.packets_out, c.bytes_out) for n, c in ports.items()
            },
            drops=dict(self.drops),
            parser_errors={errors[number]: count for number, count in self.parser_errors.items()},
        )


# Reasons of drops, besides those that a program gives itself.
DROP_INGRESS = "dropped in ingress"
DROP_EGRESS = "dropped in egress"
DROP_NO_PORT = "no such port"
DROP_NO_GROUP = "no such multicast group"
DROP_EMPTY_GROUP = "multicast group without replicas"
DROP_LOOP = "loop without end"
DROP_ASSERT = "assertion failed"
DROP_WORK = "too much work for one packet"
