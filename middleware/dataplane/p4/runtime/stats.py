"""What a switch has counted since it was made: the quantities that the papers measure."""

from __future__ import annotations

import msgspec


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
