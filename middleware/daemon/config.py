"""Builds `Settings` from flags, variables and a TOML file; reports each mistake with its correction.

Precedence: flag, then variable, then file, then default. An unknown key is refused, and so is a variable that
is nearly a setting. Any other variable that begins with TREECAST_ belongs to some other program, and is only
logged: Kubernetes gives every container such variables if a Service of its namespace is named treecast.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path

import msgspec
from msgspec import Struct

from treecast.middleware.api.discovery import OFF, Address
from treecast.middleware.model.carriers import AUTO, UNICAST, carriers_of
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.topic_config import TOPIC_CONFIG_KEYS, TopicConfig

from .faces import listeners
from .settings import PREFIX, Key, Settings, keys

CONFIG_VARIABLE = "TREECAST_CONFIG"
# Variables of Treecast that are not settings of a daemon.
_OTHER_VARIABLES = frozenset(
    {CONFIG_VARIABLE, "TREECAST_CI", "TREECAST_PURE", "TREECAST_TOKEN", "TREECAST_TRUST"}
)
_WILDCARDS = frozenset({"0.0.0.0", "::"})  # nosec B104  # refused without an address for others
_MISSPELT = 0.8  # similarity, from 0 to 1, from which a variable counts as a misspelt setting
# Variables that Kubernetes and container links make of the name of a service and its ports.
_GENERATED = re.compile(
    r"TREECAST(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?|NAME"
    r"|ENV_\w+)"
)


class ConfigError(Exception):
    """A setting is wrong. The text names its place and the correction."""


class Loaded(Struct, frozen=True):
    """The settings, the source of each that is not a default, and remarks for the log."""

    settings: Settings
    sources: Mapping[str, str] = {}
    remarks: tuple[str, ...] = ()


class _Given(Struct, frozen=True):
    """A value as written, and its place."""

    value: object
    where: str


def load(flags: Mapping[str, str], environment: Mapping[str, str], config: Path | None = None) -> Loaded:
    """Reads all sources. `flags` maps names of settings to text. Raises ConfigError."""
    chosen = config or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    given: dict[str, _Given] = _from_file(chosen) if chosen else {}
    variables, remarks = _from_environment(environment)
    given |= variables
    given |= {name: _Given(text, keys()[name].flag) for name, text in flags.items()}
    values = {name: _convert(keys()[name], entry) for name, entry in given.items()}
    sources = {name: entry.where for name, entry in given.items()}
    settings = _complete(Settings(**values), environment)  # type: ignore[arg-type]
    _check(settings, sources)
    return Loaded(settings, sources, remarks)


# --- reading


def _from_file(path: Path) -> dict[str, _Given]:
    import tomllib  # imported here because most daemons have no file and start-up time counts

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    for name in table:
        if name not in keys():
            raise ConfigError(f"{path}: unknown key {name!r}; {_nearest(name, keys())}")
    return {name: _Given(value, f"{path}: {name}") for name, value in table.items()}


def _from_environment(environment: Mapping[str, str]) -> tuple[dict[str, _Given], tuple[str, ...]]:
    by_variable = {key.variable: key.name for key in keys().values()}
    given: dict[str, _Given] = {}
    remarks = []
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable in _OTHER_VARIABLES:
            continue
        if variable in by_variable:
            given[by_variable[variable]] = _Given(text, variable)
        elif _GENERATED.fullmatch(variable):
            remarks.append(f"{variable} names a service, as Kubernetes does, and is ignored")
        elif similar := _misspelt(variable.removeprefix(PREFIX), by_variable):
            raise ConfigError(f"unknown variable {variable}; did you mean {similar}?")
        else:
            remarks.append(f"{variable} is not a setting of the daemon and is ignored")
    return given, tuple(remarks)


def _misspelt(rest: str, by_variable: Mapping[str, str]) -> str | None:
    """Returns the variable that was meant, if `rest` is nearly the name of a setting.

    The prefix, which all have in common, does not count as similar.
    """
    names = {variable.removeprefix(PREFIX): variable for variable in by_variable}
    similar = _similar(rest, names, _MISSPELT) or next((one for one in names if _one_apart(rest, one)), None)
    return names[similar] if similar is not None else None


def _one_apart(one: str, other: str) -> bool:
    """Whether one letter is wrong, missing or too many, or two neighbours stand the wrong way round."""
    if len(one) > len(other):
        one, other = other, one
    start = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    if len(one) < len(other):
        return one[start:] == other[start + 1 :]
    swapped = other[start : start + 2][::-1] + other[start + 2 :]
    return one[start + 1 :] == other[start + 1 :] or one[start:] == swapped


def _similar(name: str, valid: Iterable[str], least: float = 0.0) -> str | None:
    """Returns the valid name most similar to `name`, if the similarity (0 to 1) is at least `least`."""
    import difflib  # imported here because only mistakes need it

    return next(iter(difflib.get_close_matches(name, list(valid), 1, least)), None)


def _nearest(name: str, valid: Iterable[str]) -> str:
    return f"did you mean {_similar(name, valid)!r}?"


def unknown_flag(text: str, flags: Iterable[str]) -> str:
    """Returns the message about an unknown flag."""
    flag = text.split("=", 1)[0]
    valid = [*flags, "--help"]
    return f"unknown flag {flag}; did you mean {_similar(flag, valid)}?"


# --- converting


def _convert(key: Key, given: _Given) -> object:
    value = given.value
    if key.base is dict:
        return _topic_defaults(value, given.where)
    from_file = not isinstance(value, str)
    try:
        return msgspec.convert(value, key.hint, strict=from_file)
    except msgspec.ValidationError as error:
        what = _expected(key, str(error).split(" - at ")[0])
        raise ConfigError(f"{given.where}: {value!r} does not fit: {what} ({key.placeholder})") from error


# msgspec names Python types, which an operator need not know.
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text in quotes"}
_BOUND = re.compile(r"Expected `(?:int|float)` (>=|<=|>|<) (\S+)")
_WORDS = {">=": "at least", "<=": "at most", ">": "above", "<": "below"}


def _expected(key: Key, said: str) -> str:
    """Returns the description of a setting's valid values."""
    if issubclass(key.base, Enum):
        return f"expected one of {', '.join(choice.value for choice in key.base)}"
    if found := _BOUND.fullmatch(said):
        return f"expected a number of {_WORDS[found[1]]} {found[2]}"
    return f"expected {_KINDS[key.base]}" if key.base in _KINDS else said


def _topic_defaults(value: object, where: str) -> dict[str, str]:
    if isinstance(value, str):
        pairs = [item.strip() for item in value.split(";") if item.strip()]
        for pair in pairs:
            if "=" not in pair:
                raise ConfigError(f"{where}: expected KEY=VALUE, as in retention.ms=86400000, not {pair!r}")
        value = dict(pair.split("=", 1) for pair in pairs)
    if not isinstance(value, dict):
        raise ConfigError(f'{where}: expected a table, as in [topic_defaults] and "retention.ms" = 86400000')
    defaults = {name.strip(): _topic_text(item) for name, item in value.items()}
    for name in defaults:
        if name not in TOPIC_CONFIG_KEYS:
            raise ConfigError(f"{where}: unknown topic setting {name!r}; {_nearest(name, TOPIC_CONFIG_KEYS)}")
    try:
        TopicConfig.of(defaults=defaults)
    except TreecastError as error:
        raise ConfigError(f"{where}: {error}") from error
    return defaults


def _topic_text(item: object) -> str:
    """Returns TOML's types in Kafka's spelling."""
    if isinstance(item, bool):
        return str(item).lower()
    return ",".join(map(str, item)) if isinstance(item, list) else str(item).strip()


# --- completing and checking


def _complete(settings: Settings, environment: Mapping[str, str]) -> Settings:
    """Fills in values that depend on the machine."""
    return msgspec.structs.replace(
        settings,
        name=settings.name or socket.gethostname(),
        data=os.path.abspath(os.path.expanduser(settings.data or default_data(environment))),
    )


def default_data(environment: Mapping[str, str]) -> str:
    """Returns systemd's state directory, else the system's for root, else the user's."""
    if given := environment.get("STATE_DIRECTORY"):
        return given.split(":")[0]
    if os.geteuid() == 0:
        return "/var/lib/treecast"
    state = environment.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "treecast")


def _check(settings: Settings, sources: Mapping[str, str]) -> None:
    def where(name: str) -> str:
        return sources.get(name, keys()[name].flag)

    for name in listeners():
        _check_address(getattr(settings, name), where(name))
    for name in ("kafka_advertised", "kafka_tls_advertised"):
        if (text := getattr(settings, name)) and not _parse(text, where(name)).port:
            raise ConfigError(f"{where(name)}: clients cannot be told port 0")
    _check_fabric(settings, where)
    _check_carriers(settings, where)
    _check_zone(settings, where)
    if settings.mtu:
        _check_mtu(settings.mtu, where("mtu"))
    if any(character.isspace() for character in settings.name):
        raise ConfigError(f"{where('name')}: the name {settings.name!r} holds white space")
    if settings.group_min_session_timeout_ms > settings.group_max_session_timeout_ms:
        raise ConfigError(
            f"{where('group_min_session_timeout_ms')}: the shortest session timeout is above the longest"
        )
    if settings.group_consumer_heartbeat_interval_ms >= settings.group_consumer_session_timeout_ms:
        raise ConfigError(
            f"{where('group_consumer_heartbeat_interval_ms')}: members would be silent for longer than the"
            " session timeout"
        )


def _check_mtu(mtu: int, where: str) -> None:
    from treecast.middleware.fabric.settings import (
        LEAST_MTU,
    )  # here: a host alone loads nothing of the fabric

    if mtu < LEAST_MTU:
        raise ConfigError(f"{where}: {mtu} is less than {LEAST_MTU}, which the fabric needs")


def _check_fabric(settings: Settings, where: Callable[[str], str]) -> None:
    """Checks the addresses of a host that others must reach."""
    if settings.fabric == OFF:
        for name in ("join", "fabric_advertised"):
            if getattr(settings, name):
                raise ConfigError(
                    f"{where(name)}: the fabric is off, and a host alone has no cluster:"
                    " give --fabric HOST:PORT"
                )
        return
    for address in settings.join.split(",") if settings.join else ():
        if not _parse(address, where("join")).port:
            raise ConfigError(f"{where('join')}: port 0 is not valid; give the port of the other's --control")
    if settings.fabric_advertised:
        _parse(settings.fabric_advertised, where("fabric_advertised"))
    elif _parse(settings.fabric, where("fabric")).host in _WILDCARDS:
        raise ConfigError(
            f"{where('fabric')}: {settings.fabric} listens everywhere, but other hosts need one"
            " address: set it with --fabric-advertised HOST:PORT"
        )


def _check_carriers(settings: Settings, where: Callable[[str], str]) -> None:
    if settings.carrier in (AUTO, UNICAST):
        return
    # imported here because start-up time counts
    from treecast.middleware.fabric.carriers.registry import Carriers
    from treecast.middleware.fabric.settings import FabricSettings

    found = carriers_of(settings.carrier)
    try:
        Carriers(FabricSettings(carriers=tuple(found), options=found))
    except ValueError as error:
        raise ConfigError(f"{where('carrier')}: {settings.carrier!r} does not fit: {error}") from error


def _check_zone(settings: Settings, where: Callable[[str], str]) -> None:
    from treecast.middleware.routing.zones import parse_zone

    try:
        parse_zone(settings.zone)
    except ValueError as error:
        raise ConfigError(f"{where('zone')}: {error}") from error


def _check_address(text: str, where: str) -> None:
    if text != OFF:
        _parse(text, where)


def _parse(text: str, where: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise ConfigError(f"{where}: {text!r} is not an address: {error}") from error
