"""`python -m treecast.middleware.control.stare_switch ADDRESS ...`: programs a STARE switch, by P4Runtime.

A switch that runs p4/stare_register.p4 is programmed and left alone; one that runs p4/stare_embedded.p4 is
served until SIGTERM. `ready` is printed once it is programmed.
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
from .embedded import Place
from .programming import register_state

Routes = dict[tuple[bytes, int], tuple[int, bytes]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="stare_switch", description=__doc__.split("\n")[0])
    parser.add_argument("address", help="of the switch's P4Runtime: HOST:PORT or unix:PATH")
    parser.add_argument("--design", choices=["register", "embedded"], required=True)
    parser.add_argument("--ports", required=True, help="all, as in 1,2,3")
    parser.add_argument("--tree", default="", help="those that lead to other switches")
    parser.add_argument("--mac", required=True)
    parser.add_argument("--ip", required=True, help="what acknowledgements come from; no host's")
    parser.add_argument("--route", action="append", default=[], help="NETWORK/PREFIX=PORT,MAC")
    given = parser.parse_args()
    place = Place(frozenset(_ports(given.tree)), _mac(given.mac), ipaddress.IPv4Address(given.ip).packed)
    asyncio.run(
        _serve(given.address, given.design, place, _ports(given.ports), dict(map(_route, given.route)))
    )


def _ports(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def _route(text: str) -> tuple[tuple[bytes, int], tuple[int, bytes]]:
    network, _, hop = text.partition("=")
    port, _, mac = hop.partition(",")
    found = ipaddress.IPv4Network(network)
    return (found.network_address.packed, found.prefixlen), (int(port), _mac(mac))


async def _serve(address: str, design: str, place: Place, ports: list[int], routes: Routes) -> None:
    if design == "register":
        async with SwitchSession(address) as session:
            await session.learn_program()
            await session.bring_to(register_state(place, ports, routes))
        print("ready", flush=True)
        return
    agent = StareAgent(address, place, random.Random())
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
