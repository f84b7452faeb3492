"""The exchanges that exist alike at all sites.

The first site that has an exchange defines it for all: the coordinator keeps its definition under

    7: rabbitmq / virtual host / exchange          {"type": ..., "durable": ..., ...}

A site that has one of the same name but another definition is the newcomer: it does not carry that exchange,
says so, and changes nothing. Pure but for `Exchanges`, which asks the server and the coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct

from .management import ExchangeFound
from .topics import KIND, TYPES

_PREFIX: Final = f"7:{KIND}/"
_HIDDEN: Final = "amq.rabbitmq."  # logs, traces and events of the server itself


class Definition(Struct, frozen=True):
    """The properties of an exchange that are alike at all sites."""

    type: str
    durable: bool
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}


class Plan(Struct, frozen=True):
    """The changes that exchanges need: `announce` to all sites, `declare` at this server. `clashes`: what is
    wrong with others. `carried`: those that are right here, with their types.
    """

    carried: dict[str, str]
    announce: dict[str, Definition]
    declare: dict[str, Definition]
    clashes: dict[str, str]


def prefix_of(vhost: str) -> str:
    """Returns what the keys of a virtual host's exchanges begin with."""
    return f"{_PREFIX}{quote(vhost, safe='')}/"


def key_of(vhost: str, exchange: str) -> str:
    return prefix_of(vhost) + quote(exchange, safe="")


def encoded(definition: Definition) -> bytes:
    """Returns the one spelling of a definition: two are equal if their bytes are."""
    return msgspec.json.encode(definition, order="sorted")


def read_all(vhost: str, defined: Mapping[str, bytes]) -> dict[str, Definition]:
    """Returns the definitions of a virtual host by exchange. What cannot be read is left out."""
    start, found = prefix_of(vhost), {}
    for key, value in defined.items():
        if key.startswith(start):
            try:
                found[unquote(key.removeprefix(start))] = msgspec.json.decode(value, type=Definition)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
    return found


def definition_of(found: ExchangeFound) -> Definition:
    return Definition(found.type, found.durable, found.auto_delete, found.internal, found.arguments)


def plan(
    local: Iterable[ExchangeFound], asked: Mapping[str, Definition], shared: Mapping[str, Definition]
) -> Plan:
    """Compares the exchanges of this server with those of all sites.

    `local`: those here whose names are to be carried. `asked`: those that the settings ask to declare.
    `shared`: those that all sites know, if they are to be carried here.
    """
    made = Plan({}, {}, {}, {})
    here = {one.name: definition_of(one) for one in local if one.name and not one.name.startswith(_HIDDEN)}
    for name in sorted({*here, *asked, *shared}):
        holds = shared.get(name)
        mine = here.get(name) or asked.get(name) or holds
        assert mine is not None
        wrong = _wrong(name, mine) or (_clash(name, mine, holds) if holds is not None else "")
        if wrong:
            made.clashes[name] = wrong
            continue
        if holds is None:
            made.announce[name] = mine
        if name not in here:
            made.declare[name] = mine
        made.carried[name] = mine.type
    return made


def _wrong(name: str, mine: Definition) -> str:
    if mine.type not in TYPES:
        return f"exchange {name} has the type {mine.type}, which is not carried: only {', '.join(TYPES)} are"
    if mine.internal:
        return f"exchange {name} is internal, so nobody can publish to it: leave it out of rabbitmq.exchanges"
    return ""


def _clash(name: str, mine: Definition, holds: Definition) -> str:
    if encoded(mine) == encoded(holds):
        return ""
    differs = [
        f"{field} {getattr(mine, field)!r} here and {getattr(holds, field)!r} at the other sites"
        for field in Definition.__struct_fields__
        if getattr(mine, field) != getattr(holds, field)
    ]
    return (
        f"exchange {name} was defined before by another site, and differs: {', '.join(differs)}; it is not"
        " carried here. Delete it at this server, or leave it out of rabbitmq.exchanges"
    )


class Shared(Protocol):
    """The definitions that all sites know; `relay.brokerless.BrokerlessHost` implements it."""

    def defined(self, prefix: str) -> dict[str, bytes]: ...

    async def define(self, key: str, value: bytes) -> bytes: ...


async def announce(shared: Shared, vhost: str, made: Plan) -> dict[str, str]:
    """Announces what a plan says. Returns the clashes with what other sites announced meanwhile.

    Raises TreecastError if the coordinator does not answer.
    """
    clashes = {}
    for name, mine in made.announce.items():
        holds = await shared.define(key_of(vhost, name), encoded(mine))
        other = read_all(vhost, {key_of(vhost, name): holds}).get(name)
        if other is not None and (wrong := _clash(name, mine, other)):
            clashes[name] = wrong
    return clashes
