"""Packets through the embedded P4 target: generated code against the interpreter, as ratios.

.venv/bin/python -m bench.micro_p4                     this one
.venv/bin/python -m bench.micro_p4 --program X.p4 --packet HEX --port N

Two programs of the tests: a state packet that goes to the four ports of a register's bitmask (Ethernet, IPv4
and UDP are parsed), and a router (longest prefix, time to live, two checksums, a counter); and the register
design of STARE in p4/, a publish to four ports. Both engines run in turn, over processor time, so that a
disturbed machine disturbs both; the best round of each counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from treecast.middleware.dataplane.p4 import bits
from treecast.middleware.dataplane.p4.frontend import load_program
from treecast.middleware.dataplane.p4.runtime import (
    ActionCall,
    Entry,
    LpmMatch,
    MulticastGroup,
    Replica,
    Switch,
)

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "tests/unit/p4/execution/programs"
ETHERNET = bytes.fromhex("0a0b0c0d0e0f0102030405060800")


def ipv4(destination: int) -> bytes:
    """Returns a header with its checksum, and UDP behind it."""
    header = bytes.fromhex("4500006c00000000401100000a000001") + destination.to_bytes(4, "big")
    checksum = bits.csum16_bytes(header).to_bytes(2, "big")
    return header[:10] + checksum + header[12:] + bytes.fromhex("ff98ff9800580000") + bytes(80)


def bitmask(switch: Switch) -> None:
    switch.control.register("I.ports").write(256, 0b11110)
    replicas = tuple(Replica(port) for port in range(1, 5))
    switch.control.replication.insert_group(MulticastGroup(0b11110, replicas))


def router(switch: Switch) -> None:
    for prefix in (8, 16, 24):
        mask = bits.prefix_mask(prefix, 32)
        call = ActionCall("I.route", {"next_hop": 7, "port": 2})
        switch.control.table("I.routes").insert(
            Entry({"h.ipv4.dst": LpmMatch(0x0A010203 & mask, prefix)}, call)
        )


def stare(switch: Switch) -> None:
    switch.control.register("StareIngress.subscribers").write(256, 0b11110)
    replicas = tuple(Replica(port) for port in range(1, 5))
    switch.control.replication.insert_group(MulticastGroup(0b11110, replicas))


SCENES: dict[Path, tuple[Callable[[Switch], None], bytes]] = {
    PROGRAMS / "bitmask.p4": (bitmask, ETHERNET + ipv4(0xEF000100)),
    PROGRAMS / "router.p4": (router, ETHERNET + ipv4(0x0A010203)),
    ROOT / "p4/stare_register.p4": (stare, ETHERNET + ipv4(0xEF000100)),
}


def include(name: str, file: str) -> tuple[str, str] | None:
    """Files beside the program."""
    path = Path(file).parent / name
    return (str(path), path.read_text()) if path.exists() else None


def packets_per_second(switch: Switch, port: int, packet: bytes, count: int) -> float:
    """Returns packets per second of processor time, which other processes disturb less."""
    batch = [(port, packet)] * min(count, 100)
    start = time.process_time()
    for _ in range(count // len(batch)):
        switch.receive_many(batch, 1.0)
    return count / (time.process_time() - start)


def measure(path: Path, fill: Callable[[Switch], None], port: int, packet: bytes, rounds: int) -> None:
    program = load_program(path.read_text(), str(path), include)
    switches = [Switch(program, ports=range(16), interpret=interpret) for interpret in (True, False)]
    for switch in switches:
        fill(switch)
    first = [switch.receive(port, packet, 1.0) for switch in switches]
    assert first[0] == first[1]
    best = [0.0, 0.0]
    for _ in range(rounds):
        for number, (switch, count) in enumerate(zip(switches, (500, 20_000), strict=True)):
            best[number] = max(best[number], packets_per_second(switch, port, packet, count))
    plain, fast = best
    print(
        f"{path.stem:16} {len(first[0])} copies  {switches[1].engine}  {fast:10,.0f} packets/s "
        f" {1e6 / fast:6.2f} us  interpreted {plain:8,.0f}  ratio {fast / plain:6.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", type=Path)
    parser.add_argument("--packet", type=bytes.fromhex, default=b"")
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    compiled = not (bits.__file__ or "").endswith(".py")
    print(f"bit helpers {'compiled' if compiled else 'interpreted'}")
    if arguments.program:
        measure(arguments.program, lambda switch: None, arguments.port, arguments.packet, arguments.rounds)
        return
    for path, (fill, packet) in SCENES.items():
        measure(path, fill, 0, packet, arguments.rounds)


if __name__ == "__main__":
    main()
