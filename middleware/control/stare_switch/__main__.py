"""`python -m treecast.middleware.control.stare_switch ADDRESS ...`: programs a STARE switch, by P4Runtime.

A switch that runs p4/stare_register.p4 is programmed once; one that runs p4/stare_embedded.p4 is served until
SIGTERM. Prints `ready` once the switch is programmed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import random
import signal

from treecast.middleware.control.switches import SwitchSession

from .agent import StareAgent
from .embedded import BETWEEN_SWITCHES, EXPIRE, Place
from .programming import Routes, register_state, width_of


def main() -> None:
    parser = argparse.ArgumentParser(prog="stare_switch", description=__doc__.split("\n")[0])
    parser.add_argument("address", help="address of the switch's P4Runtime: HOST:PORT or unix:PATH")
    parser.add_argument("--design", choices=["register", "embedded"], required=True)
    parser.add_argument("--ports", required=True, help="all ports, as in 1,2,3 or 1-48")
    parser.add_argument("--tree", default="", help="the ports that lead to other switches")
    parser.add_argument("--mac", required=True)
    parser.add_argument("--ip", required=True, help="source address of acknowledgements; no host may have it")
    parser.add_argument("--ipv6", default="", help="the same in IPv6; default: link-local, of the MAC")
    parser.add_argument("--route", action="append", default=[], help="NETWORK/PREFIX=PORT,MAC")
    parser.add_argument(
        "--expire",
        type=float,
        default=EXPIRE,
        help="seconds until an unrefreshed subscription expires (embedded)",
    )
    given = parser.parse_args()
    ipv6 = ipaddress.IPv6Address(given.ipv6).packed if given.ipv6 else b""
    address = ipaddress.IPv4Address(given.ip).packed
    place = Place(frozenset(_ports(given.tree)), _mac(given.mac), address, ipv6)
    routes = dict(map(_route, given.route))
    asyncio.run(_serve(given.address, given.design, place, _ports(given.ports), routes, given.expire))


def _ports(text: str) -> list[int]:
    found: list[int] = []
    for word in filter(None, text.split(",")):
        first, _, last = word.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def _route(text: str) -> tuple[tuple[bytes, int], tuple[int, bytes]]:
    network, _, hop = text.partition("=")
    port, _, mac = hop.partition(",")
    found = ipaddress.ip_network(network)
    return (found.network_address.packed, found.prefixlen), (int(port), _mac(mac))


async def _serve(
    address: str, design: str, place: Place, ports: list[int], routes: Routes, expire: float
) -> None:
    if design == "register":
        async with SwitchSession(address) as session:
            await session.learn_program()
            width = width_of(session.schema.info)
            await session.bring_to(register_state(place, ports, routes, width=width))
        print("ready", flush=True)
        return
    agent = StareAgent(address, place, random.Random(), BETWEEN_SWITCHES, expire=expire)
    running = asyncio.create_task(agent.run(ports, routes))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    ready = asyncio.create_task(agent.ready.wait())
    await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
    if ready.done():
        print("ready", flush=True)
    ready.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


if __name__ == "__main__":
    main()
