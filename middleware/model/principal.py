"""Principals: a user, a host, an agent, or a client that has not said who it is."""

from __future__ import annotations

import enum
from typing import Final

from msgspec import Struct

HERE: Final = "127.0.0.1"
ANYWHERE: Final = "?"


class PrincipalKind(enum.Enum):
    USER = "user"
    HOST = "host"
    AGENT = "agent"
    ANONYMOUS = "anonymous"


class Proof(enum.Enum):
    """How a principal has proven its name."""

    NONE = "none"
    PASSWORD = "password"
    SCRAM = "scram"
    CERTIFICATE = "certificate"
    TOKEN = "token"


class Principal(Struct, frozen=True):
    """The one who asks for an operation. `address`: the IP address that it connects from, HERE for clients of
    this machine, ANYWHERE for a session whose client is away."""

    name: str
    kind: PrincipalKind = PrincipalKind.USER
    proof: Proof = Proof.PASSWORD
    address: str = "127.0.0.1"


ANONYMOUS: Final = Principal("ANONYMOUS", PrincipalKind.ANONYMOUS, Proof.NONE)
