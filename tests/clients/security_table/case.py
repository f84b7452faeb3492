"""The cases of the table, and what a client is told of one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

WORKS: Final = "works"
LONGEST_S: Final = 25.0  # of an attempt: a client that is told nothing ends by it


class Case(Struct, frozen=True):
    """One attempt to publish over TLS. Files are paths. `revoked`: its user is deleted after the first
    message, and it publishes on.
    """

    kafka: str  # HOST:PORT of the TLS faces
    mqtt: str
    amqp: str
    authority: str  # whom the client trusts
    user: str = ""
    password: str = ""
    certificate: str = ""  # with its key
    token: str = ""
    topic: str = "orders"
    revoked: bool = False


class Kind(Struct, frozen=True):
    """A column of the table. `fine`: it is to work. `faces`: that know such a log-in."""

    title: str
    given: Mapping[str, object]  # fields of Case; files and tokens by their names at the site
    fine: bool = False
    faces: tuple[str, ...] = ("kafka", "mqtt", "amqp")


_ALICE: Final = {"user": "alice", "password": "the password of alice"}
KINDS: Final[Mapping[str, Kind]] = {
    "password": Kind("TLS and password (Kafka: SCRAM)", _ALICE, fine=True),
    "certificate": Kind("certificate", {"certificate": "alice"}, fine=True),
    "token": Kind("OAUTHBEARER", {"token": "alice"}, fine=True, faces=("kafka",)),
    "wrong-password": Kind("wrong password", {**_ALICE, "password": "another"}),
    "expired": Kind("expired certificate", {"certificate": "expired"}),
    "unknown": Kind("unknown certificate", {"certificate": "stranger"}),
    "revoked": Kind(
        "revoked user", {"user": "leaver", "password": "the password of leaver", "revoked": True}
    ),
    "right": Kind("missing right", {**_ALICE, "topic": "secrets"}),
}


def attempt(case: Case, publish: Callable[[], None]) -> str:
    """Publishes by a client that has logged in. Returns what it is told: WORKS, or its exception."""
    publish()
    if not case.revoked:
        return WORKS
    print("published", flush=True)
    sys.stdin.readline()  # the user is deleted by now
    import time

    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end:
        publish()
        time.sleep(0.1)
    return "goes on"


def named(error: BaseException, *more: object) -> str:
    """Returns the name of an exception, with codes that it has."""
    codes = ", ".join(str(one) for one in more if one not in ("", None))
    return f"{type(error).__name__} ({codes})" if codes else type(error).__name__


def parse(text: str) -> Case:
    return msgspec.json.decode(text, type=Case)
