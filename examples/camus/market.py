"""The market data filter: one switch, one publisher, four subscribers."""

from __future__ import annotations

from pathlib import Path
from random import Random

from msgspec import Struct, field

from treecast.middleware.dataplane.p4 import Switch, load_program
from treecast.middleware.dataplane.subscriptions.entries import install
from treecast.middleware.dataplane.subscriptions.header_file import read_header_file
from treecast.middleware.filters.compiler.compile import Compiled, compile_rules
from treecast.middleware.filters.compiler.program import program_text
from treecast.middleware.filters.rules import parse_rules

from .itch import MOST, feed, packet

HERE = Path(__file__).parent
PUBLISHER, SUBSCRIBERS = 9, (1, 2, 3, 4)
PORTS = 16
INTERVAL = 0.01  # s between packets


class Outcome(Struct):
    """A feed's packets and bytes, and what subscribers got of them, by port."""

    packets: int = 0
    bytes_in: int = 0
    bytes_out: dict[int, int] = field(default_factory=lambda: dict.fromkeys(SUBSCRIBERS, 0))
    copies: dict[int, int] = field(default_factory=lambda: dict.fromkeys(SUBSCRIBERS, 0))


def compiled_rules(name: str = "market") -> Compiled:
    """Returns an application's rules for its headers."""
    schema = read_header_file((HERE / f"{name}.p4").read_text(), f"{name}.p4")
    return compile_rules(schema, parse_rules((HERE / f"{name}.rules").read_text()))


def switch_with(compiled: Compiled) -> Switch:
    """Returns a switch with the generated program and the rules."""
    program = load_program(program_text(compiled.schema, compiled.order), "generated.p4")
    switch = Switch(program, ports=range(PORTS))
    install(compiled, switch)
    return switch


def run(packets: int, seed: int, most: int = MOST) -> Outcome:
    """Sends a feed through the switch."""
    switch = switch_with(compiled_rules())
    found = Outcome()
    sequence = 1
    for number, messages in enumerate(feed(packets, Random(seed), most)):
        data = packet(messages, sequence)
        sequence += len(messages)
        found.packets += 1
        found.bytes_in += len(data)
        for copy in switch.receive(PUBLISHER, data, number * INTERVAL):
            found.copies[copy.port] += 1
            found.bytes_out[copy.port] += len(copy.packet)
    return found
