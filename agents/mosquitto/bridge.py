"""Reads the bridge sections of a `mosquitto.conf`, and says what an agent does in their place.

Pure. Source: mosquitto.conf(5), "Configuring bridges".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from .topics import BadRule, Rule

# The counterparts of a bridge's options at an agent.
_INSTEAD: Final = {
    "address": "agent.join: the cluster is joined in place of one other broker",
    "addresses": "agent.join: the cluster is joined in place of one other broker",
    "start_type": "the agent is started and stopped by systemd",
    "restart_timeout": "the agent comes back by itself",
    "round_robin": "sites reach each other directly",
    "idle_timeout": "the agent stays connected",
    "threshold": "the agent stays connected",
    "cleansession": "the broker always keeps the agent's session, and the agent what the broker is owed",
    "local_cleansession": "the broker always keeps the agent's session",
    "keepalive_interval": "mosquitto.keep_alive, towards the local broker",
    "notifications": "`treecast agent status`",
    "notifications_local_only": "`treecast agent status`",
    "notification_topic": "`treecast agent status`",
    "try_private": "not needed: the agent asks for no local copies",
    "bridge_protocol_version": "mosquitto.protocol, towards the local broker",
    "bridge_attempt_unsubscribe": "not needed: the agent knows what it is subscribed to",
    "bridge_outgoing_retain": "retained messages stay retained",
    "bridge_max_packet_size": "not needed: the local broker says what it takes",
    "bridge_bind_address": "agent.fabric",
    "bridge_tcp_keepalive": "not needed",
    "bridge_tcp_user_timeout": "not needed",
    "remote_clientid": "agent.name",
    "clientid": "agent.name",
    "local_clientid": "the client id is the cluster's, so that a second agent is noticed",
    "remote_username": "agent.join_token: sites know each other by the cluster's token",
    "username": "agent.join_token: sites know each other by the cluster's token",
    "remote_password": "agent.join_token: sites know each other by the cluster's token",
    "password": "agent.join_token: sites know each other by the cluster's token",
    "bridge_cafile": "agent.join_token: segments and calls between sites are authenticated by it",
    "bridge_capath": "agent.join_token: segments and calls between sites are authenticated by it",
    "bridge_certfile": "agent.join_token: segments and calls between sites are authenticated by it",
    "bridge_keyfile": "agent.join_token: segments and calls between sites are authenticated by it",
    "bridge_identity": "agent.join_token: segments and calls between sites are authenticated by it",
    "bridge_psk": "agent.join_token: segments and calls between sites are authenticated by it",
    "bridge_tls_version": "agent.join_token: segments and calls between sites are authenticated by it",
    "bridge_insecure": "agent.join_token: segments and calls between sites are authenticated by it",
    "bridge_require_ocsp": "agent.join_token: segments and calls between sites are authenticated by it",
    "bridge_alpn": "not needed",
}
_SECRET: Final = frozenset({"remote_password", "password", "bridge_psk", "local_password"})
_PASSWORD_FILE: Final = "/etc/treecast/mosquitto-password"


class Remark(Struct, frozen=True):
    """The fate of one line. `number` counts from 1. `fault`: the agent cannot do what it says."""

    number: int
    line: str
    becomes: str
    fault: bool = False


class Bridge(Struct):
    """One section: its rules, what else goes to the table [mosquitto], and what becomes of each line."""

    name: str
    rules: list[Rule]
    settings: dict[str, str]
    remarks: list[Remark]

    def toml(self) -> str:
        """Returns the table of an agent's file."""
        lines = ["[mosquitto]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in self.settings.items()]
        lines += ["topics = [", *(f"    {_literal(str(rule))}," for rule in self.rules), "]"]
        return "\n".join(lines) + "\n"


def read_bridges(text: str) -> list[Bridge]:
    """Returns the bridges of a configuration. Lines before the first section are not looked at."""
    found: list[Bridge] = []
    for number, line in _lines(text):
        option, _, value = line.partition(" ")
        if option == "connection":
            found.append(Bridge(value.strip(), [], {}, []))
        elif option in ("listener", "port", "per_listener_settings"):
            continue
        elif found:
            found[-1].remarks.append(_remark(found[-1], number, option, value.strip()))
    return found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield number, stripped


def _remark(bridge: Bridge, number: int, option: str, value: str) -> Remark:
    shown = f"{option} ..." if option in _SECRET else f"{option} {value}"
    if option == "topic":
        return _topic(bridge, number, shown, value)
    if option == "local_username":
        bridge.settings["user"] = value
        return Remark(number, shown, "mosquitto.user")
    if option == "local_password":  # the table is shown, and copied by hand: no secret stands in it
        bridge.settings["password_file"] = _PASSWORD_FILE
        return Remark(number, shown, f"mosquitto.password_file: write the password to {_PASSWORD_FILE}")
    instead = _INSTEAD.get(option)
    if instead is None:
        return Remark(number, shown, "it is no option of a bridge that the agent knows", fault=True)
    return Remark(number, shown, instead)


def _topic(bridge: Bridge, number: int, shown: str, value: str) -> Remark:
    try:
        rule = Rule.parse(value)
    except BadRule as error:
        return Remark(number, shown, f"not carried: {error}", fault=True)
    bridge.rules.append(rule)
    ways = {"out": "to", "in": "from", "both": "to and from"}[rule.direction]
    local, remote = rule.local + rule.pattern, rule.remote + rule.pattern
    becomes = f"{local} here goes {ways} {remote} at all sites, with QoS {rule.qos} at most"
    return Remark(number, shown, becomes)


def _literal(text: str) -> str:
    """Returns a TOML string in which a rule reads as it is."""
    return f"'{text}'" if '"' in text and "'" not in text else json.dumps(text)
