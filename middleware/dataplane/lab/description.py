"""The parts of a lab (hosts, routers, bridges, P4 switches, links) and their form in a TOML file. Pure.

    [hosts.alpha]
    run = ["sleep 1000"]            # started when the lab is up; a line split as a shell would, or words

    [routers.core]

    [bridges.lan]                   # all keys are optional
    snooping = true                 # multicast only to ports with members (and to all until a querier stands)
    querier = true
    hash_max = 4096                 # groups; beyond it the kernel switches snooping off

    [switches.s1]                   # runs a P4 program; its links are its ports, from 1
    program = "router.p4"           # beside this file; without one a controller sets it
    cpu_port = 510

    [[links]]
    between = ["alpha", "lan"]
    mtu = 1500
    rate = "100mbit"                # each way
    delay = "10ms"                  # each way, as all that follows
    loss = "1%"
    reorder = "1%"
    duplicate = "1%"
    relay = true                    # through a relay, to be impaired later; implied by the four above

Numbers with units are those of `units`. Names are at most 15 characters of a-z, 0-9 and `-`.
"""

from __future__ import annotations

import difflib
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec

from . import units
from .impairment import Impairment

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,13}[a-z0-9])?", re.ASCII)
LEAST_MTU, MOST_MTU = 1280, 65535  # RFC 8200, section 5: IPv6 needs 1280


GOOD = Impairment()


class DescriptionError(Exception):
    """A description is wrong. The text names its source, the key, and a correction."""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine with applications. `run` are commands that are started when the lab is up."""

    run: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Router:
    """Forwards IPv4 and IPv6 unicast between its links. It does not route multicast."""


@dataclass(frozen=True, slots=True)
class Bridge:
    """A bridge of the kernel's. `hash_max`: how many groups it can know, a power of two."""

    snooping: bool = True
    querier: bool = True
    hash_max: int = 4096


@dataclass(frozen=True, slots=True)
class Switch:
    """A software switch in a process of its own. Port `n` is its link `n`, from 1, in the order of the links.

    `program` is a path, seen from the lab's file, or empty. Controllers reach it at a Unix socket
    (`Lab.p4runtime`).
    """

    program: str = ""
    cpu_port: int = 510


@dataclass(frozen=True, slots=True)
class Link:
    """A link between two nodes. `rate` in bit/s. Frames of a link with `relay` or an impairment pass
    a relay.
    """

    between: tuple[str, str]
    rate: int | None = None
    mtu: int = 1500
    impairment: Impairment = GOOD
    relay: bool = False

    @property
    def name(self) -> str:
        return "=".join(self.between)

    @property
    def relayed(self) -> bool:
        return self.relay or self.impairment != GOOD


Node = Host | Router | Bridge | Switch


@dataclass(frozen=True, slots=True)
class Description:
    """A whole lab. Raises DescriptionError if its parts do not fit together; `source` is named in errors."""

    hosts: Mapping[str, Host]
    links: tuple[Link, ...] = ()
    routers: Mapping[str, Router] = field(default_factory=lambda: MappingProxyType({}))
    bridges: Mapping[str, Bridge] = field(default_factory=lambda: MappingProxyType({}))
    switches: Mapping[str, Switch] = field(default_factory=lambda: MappingProxyType({}))
    source: str = "lab"

    def __post_init__(self) -> None:
        _check(self)

    @property
    def nodes(self) -> dict[str, Node]:
        """All nodes, hosts first."""
        return {**self.hosts, **self.routers, **self.bridges, **self.switches}


# --- what fits together


def _check(lab: Description) -> None:
    kinds = {"hosts": lab.hosts, "routers": lab.routers, "bridges": lab.bridges, "switches": lab.switches}
    seen: dict[str, str] = {}
    for kind, names in kinds.items():
        for name in names:
            where = f"{lab.source}: {kind}.{name}"
            if not _NAME.fullmatch(name):
                raise DescriptionError(
                    f"{where}: a name is 1 to 15 characters of a-z, 0-9 and - (not at its ends)"
                )
            if name in seen:
                raise DescriptionError(f"{where}: {seen[name]}.{name} has this name already")
            seen[name] = kind
    if not lab.hosts:
        raise DescriptionError(f"{lab.source}: no hosts; add a table such as [hosts.alpha]")
    for name, bridge in lab.bridges.items():
        if bridge.hash_max < 1 or bridge.hash_max & (bridge.hash_max - 1):
            raise DescriptionError(
                f"{lab.source}: bridges.{name}.hash_max: {bridge.hash_max} is no power of two, as in 4096"
            )
    _check_links(lab, seen)


def _check_links(lab: Description, names: Mapping[str, str]) -> None:
    joined: dict[str, str] = {name: name for name in lab.bridges}  # union-find over bridges

    def top(name: str) -> str:
        while joined[name] != name:
            name = joined[name]
        return name

    for number, link in enumerate(lab.links):
        where = f"{lab.source}: links[{number}]"
        for end in link.between:
            if end not in names:
                raise DescriptionError(f"{where}.between: no node is named {end!r}{_nearest(end, names)}")
        one, other = link.between
        if one == other:
            raise DescriptionError(f"{where}.between: {one!r} is linked to itself")
        if not LEAST_MTU <= link.mtu <= MOST_MTU:
            raise DescriptionError(f"{where}.mtu: {link.mtu} is not from {LEAST_MTU} to {MOST_MTU}")
        if one in joined and other in joined:
            if top(one) == top(other):
                raise DescriptionError(
                    f"{where}: {one} and {other} are joined already; bridges in a ring flood forever"
                )
            joined[top(one)] = top(other)


def _nearest(name: str, valid: Iterable[str]) -> str:
    listed = list(valid)
    found = difflib.get_close_matches(name, listed, 1, 0.5)
    if found:
        return f"; the nearest is {found[0]!r}"
    return f"; there are {', '.join(sorted(listed))}" if listed else "; there are none"


# --- from TOML


class _HostTable(msgspec.Struct):
    run: list[str | list[str]] = []


class _RouterTable(msgspec.Struct):
    pass


class _BridgeTable(msgspec.Struct):
    snooping: bool = True
    querier: bool = True
    hash_max: int = 4096


class _SwitchTable(msgspec.Struct):
    program: str = ""
    cpu_port: int = 510


class _LinkTable(msgspec.Struct):
    between: tuple[str, str]
    rate: str | int | float | None = None
    mtu: int = 1500
    delay: str | int | float = 0
    loss: str | int | float = 0
    reorder: str | int | float = 0
    duplicate: str | int | float = 0
    relay: bool = False


_TABLES: dict[str, type[msgspec.Struct]] = {
    "hosts": _HostTable,
    "routers": _RouterTable,
    "bridges": _BridgeTable,
    "switches": _SwitchTable,
}


def parse(text: str, source: str) -> Description:
    """Parses a lab's TOML. Raises DescriptionError with the mistake, its place, and the nearest valid
    text.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DescriptionError(f"{source}: {error}") from error
    for key in document:
        if key not in (*_TABLES, "links"):
            raise DescriptionError(f"{source}: {key}: unknown key{_nearest(key, [*_TABLES, 'links'])}")
    tables = {kind: _tables(document.get(kind, {}), kind, source) for kind in _TABLES}
    return Description(
        hosts={
            name: Host(_commands(table, f"{source}: hosts.{name}")) for name, table in tables["hosts"].items()
        },
        routers=dict.fromkeys(tables["routers"], Router()),
        bridges={name: Bridge(**msgspec.structs.asdict(table)) for name, table in tables["bridges"].items()},
        switches={
            name: Switch(**msgspec.structs.asdict(table)) for name, table in tables["switches"].items()
        },
        links=_links(document.get("links", []), source),
        source=source,
    )


def _tables(value: object, kind: str, source: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DescriptionError(f"{source}: {kind}: tables are expected, such as [{kind}.alpha]")
    return {name: _convert(table, _TABLES[kind], f"{source}: {kind}.{name}") for name, table in value.items()}


def _convert(value: object, to: type[msgspec.Struct], where: str) -> Any:
    known = [field.name for field in msgspec.structs.fields(to)]
    for key in value if isinstance(value, dict) else ():
        if key not in known:
            raise DescriptionError(f"{where}.{key}: unknown key{_nearest(key, known)}")
    try:
        return msgspec.convert(value, to)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        raise DescriptionError(f"{where}{path.rstrip('`')}: {what}") from error


def _commands(table: _HostTable, where: str) -> tuple[tuple[str, ...], ...]:
    found = []
    for number, command in enumerate(table.run):
        try:
            words = shlex.split(command) if isinstance(command, str) else command
        except ValueError as error:
            raise DescriptionError(f"{where}.run[{number}]: {error}") from error
        if not words:
            raise DescriptionError(f"{where}.run[{number}]: an empty command")
        found.append(tuple(words))
    return tuple(found)


def _links(value: object, source: str) -> tuple[Link, ...]:
    if not isinstance(value, list):
        raise DescriptionError(f"{source}: links: an array of tables is expected, each begun by [[links]]")
    return tuple(_link(table, f"{source}: links[{number}]") for number, table in enumerate(value))


def _link(value: object, where: str) -> Link:
    table: _LinkTable = _convert(value, _LinkTable, where)

    def number(key: str, read: Any) -> Any:
        try:
            return read(getattr(table, key))
        except ValueError as error:
            raise DescriptionError(f"{where}.{key}: {error}") from error

    shares = {key: number(key, units.share) for key in ("loss", "reorder", "duplicate")}
    return Link(
        between=table.between,
        rate=None if table.rate is None else number("rate", units.rate),
        mtu=table.mtu,
        impairment=Impairment(delay=number("delay", units.duration), **shares),
        relay=table.relay,
    )
