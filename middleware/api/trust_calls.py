"""The calls of a secured cluster's authority: frames over TLS, each with one message as msgpack.

  frame       length (4 bytes, big endian, at most 256 KiB) | message, a map whose `type` names it

A connection is chosen by ALPN at the coordinator's control address. It carries one request, which has one
answer; `Follow` has one after the other, whenever something has changed, and `Alive` in between.

  request                  from                      answer
  Hello                    anybody                   Certificates: by which the coordinator is recognised
  Join                     anybody with a token      Joined
  Renew                    a host                    Joined
  Follow                   a host                    Keys, Keys ...
  CreateToken              an administrator          TokenCreated
  Expel, Rotate, ListHosts an administrator          Done, Done, Hosts
  any                                                Refusal

`Hello` is the one request after which a second one follows on the same connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from treecast.middleware.model.errors import Fault, TreecastError

HOST: Final = "host"  # roles of certificates
ADMINISTRATOR: Final = "administrator"
ALPN: Final = "treecast-trust/1"
H2: Final = "h2"  # gRPC's
LONGEST: Final = 256 << 10  # bytes of a request
LONGEST_ANSWER: Final = 16 << 20  # users, certificates: of an authority that has proven to be the cluster's
HEAD: Final = 4


class _Message(Struct, frozen=True, tag=True, omit_defaults=True):
    """One message. Its type's name is its tag."""


class Hello(_Message, frozen=True):
    """Asks for the authority's certificate, before a secret is told."""


class Certificates(_Message, frozen=True):
    """`authority`: PEM."""

    authority: bytes


class Join(_Message, frozen=True):
    """`request`: for a certificate, DER. `addresses`: IP addresses at which applications reach the host."""

    token: bytes
    secret: bytes
    name: str
    request: bytes
    addresses: list[str] = []


class Renew(_Message, frozen=True):
    """Asks for a new certificate before the present one ends."""

    request: bytes
    addresses: list[str] = []


class Joined(_Message, frozen=True):
    """`certificate` and `authority`: PEM. `users`: the coordinator's file of users; empty if it has none."""

    cluster_id: str
    certificate: bytes
    authority: bytes
    users: str = ""


class Follow(_Message, frozen=True):
    """Asks for the keys whenever they are others than those of `generation`."""

    generation: int = 0


class Keys(_Message, frozen=True):
    """The keys that hold, and whose certificates. `expelled` and `known`: serial numbers, as hex; no other
    certificate than those of `known` is accepted. None: of a version that told only who is expelled.
    """

    generation: int
    current: int
    keys: dict[int, bytes]
    expelled: list[str] = []
    known: list[str] | None = None


class Alive(_Message, frozen=True):
    """Says that nothing has changed."""


class CreateToken(_Message, frozen=True):
    """`seconds`: how long it is valid. `name`: of the host that may use it; empty: any new one."""

    seconds: float
    name: str = ""


class TokenCreated(_Message, frozen=True):
    """`expires`: seconds since 1970."""

    token: str
    expires: float


class Expel(_Message, frozen=True):
    """Expels a host by its name."""

    name: str


class Rotate(_Message, frozen=True):
    """Asks for a new key of segments; the one before it stays valid until the next."""


class Done(_Message, frozen=True):
    """`generation`: of the keys that hold now. `hosts`: how many certificates were refused."""

    generation: int
    hosts: int = 0


class ListHosts(_Message, frozen=True):
    """Asks for all certificates that were given out."""


class Issued(Struct, frozen=True):
    """A certificate. `until` and `expelled`: seconds since 1970; 0: not expelled."""

    name: str
    role: str
    serial: str
    until: float
    expelled: float = 0.0


class Hosts(_Message, frozen=True):
    issued: list[Issued]
    generation: int
    current: int


class Refusal(_Message, frozen=True):
    """`fault`: a name of `model.errors.Fault`."""

    fault: str
    detail: str


ANYBODY: Final = "anybody"
HOLDER: Final = "holder of a one-time token"

# The caller of each call: a role of `certificates`, or one of the two above
CALLERS: Final[Mapping[type[Struct], str]] = MappingProxyType(
    {
        Hello: ANYBODY,
        Join: HOLDER,
        Renew: HOST,
        Follow: HOST,
        CreateToken: ADMINISTRATOR,
        Expel: ADMINISTRATOR,
        Rotate: ADMINISTRATOR,
        ListHosts: ADMINISTRATOR,
    }
)

Request = Hello | Join | Renew | Follow | CreateToken | Expel | Rotate | ListHosts
Answer = Certificates | Joined | Keys | Alive | TokenCreated | Done | Hosts | Refusal

_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_answers: Final[msgspec.msgpack.Decoder[Answer]] = msgspec.msgpack.Decoder(Answer)
M = TypeVar("M")


def frame(message: Request | Answer) -> bytes:
    """Returns a message with its length before it."""
    body = _encoder.encode(message)
    return len(body).to_bytes(HEAD, "big") + body


def length_of(head: bytes, longest: int = LONGEST) -> int:
    """Returns the length of the message after `head`. Raises INVALID_REQUEST above the limit."""
    length = int.from_bytes(head, "big")
    if not 0 < length <= longest:
        raise TreecastError(Fault.INVALID_REQUEST, f"a message of {length} bytes: at most {longest}")
    return length


def read_request(body: bytes) -> Request:
    """Raises INVALID_REQUEST."""
    return _read(_requests, body)


def read_answer(body: bytes) -> Answer:
    """Raises INVALID_REQUEST, or the refusal that it is."""
    found = _read(_answers, body)
    if isinstance(found, Refusal):
        known = found.fault in Fault.__members__
        raise TreecastError(Fault[found.fault] if known else Fault.INTERNAL, found.detail[:1000])
    return found


def _read(decoder: msgspec.msgpack.Decoder[M], body: bytes) -> M:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TreecastError(Fault.INVALID_REQUEST, f"this is no message of the authority: {error}") from error
