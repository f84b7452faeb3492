"""The encoding of runs in `block_store`. Decoding checks all lengths against the available bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from treecast.middleware.model.errors import Fault, TreecastError

from .deaths import Death
from .message import HEAD, Run

_FIXED: Final = struct.Struct(">BBhqII")  # format, flags, priority, expiration, messages, bytes of bodies
_DEATH: Final = struct.Struct(">QqIB")  # time, expiration, count, flags
_NO_MORE: Final = bytes(6)  # no copies, hidden copies and deaths: three empty lists
_PERSISTENT: Final = 1
_FIRST: Final = 1


def encode(run: Run) -> bytes:
    parts = [
        _FIXED.pack(
            run.format,
            _PERSISTENT if run.persistent else 0,
            run.priority,
            run.expiration,
            run.count,
            run.size,
        ),
        _named(run.exchange),
        _named(run.key),
    ]
    if run.copies or run.hidden_copies or run.deaths:
        parts += [_listed(run.copies), _listed(run.hidden_copies), len(run.deaths).to_bytes(2, "big")]
        parts += [_encode_death(death) for death in run.deaths]
    else:
        parts.append(_NO_MORE)
    parts.append(run.data)
    return b"".join(parts)


def _encode_death(death: Death) -> bytes:
    fixed = _DEATH.pack(death.time, death.expiration, death.count, _FIRST if death.first else 0)
    names = _named(death.queue) + _named(death.reason.encode()) + _named(death.exchange)
    return fixed + names + _listed(death.keys)


def _named(name: bytes) -> bytes:
    return len(name).to_bytes(2, "big") + name


def _listed(names: Sequence[bytes]) -> bytes:
    return len(names).to_bytes(2, "big") + b"".join([_named(name) for name in names])


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def count(self) -> int:
        self.at += 2
        return int.from_bytes(self.data[self.at - 2 : self.at], "big")

    def name(self) -> bytes:
        size = self.count()
        self.at += size
        return self.data[self.at - size : self.at]

    def names(self) -> tuple[bytes, ...]:
        return tuple([self.name() for _ in range(self.count())])

    def death(self) -> Death:
        time, expiration, count, flags = _DEATH.unpack_from(self.data, self.at)
        self.at += _DEATH.size
        queue, reason, exchange = self.name(), self.name().decode(), self.name()
        first = flags & _FIRST != 0
        return Death(queue, reason, exchange, self.names(), time, expiration, count, first)


def decode(data: bytes) -> Run:
    """Returns the decoded run. Raises STORAGE if the bytes were not written by `encode`."""
    try:
        return _decode(data)
    except (struct.error, UnicodeDecodeError) as error:
        raise TreecastError(Fault.STORAGE, f"a stored run cannot be read: {error}") from error


def received(data: bytes) -> Run:
    """Returns a run that another host has sent. Raises STORAGE if its messages are not as it says."""
    run = decode(data)
    at = bodies = count = 0
    end = len(run.data)
    while at + HEAD <= end:
        properties = int.from_bytes(run.data[at : at + 4], "big")
        body = int.from_bytes(run.data[at + 4 : at + HEAD], "big")
        at += HEAD + properties + body
        bodies += body
        count += 1
    if at != end or bodies != run.size or count != run.count or count == 0:
        raise TreecastError(Fault.STORAGE, f"a run of {run.count} messages does not hold them")
    return run


def _decode(data: bytes) -> Run:
    format, flags, priority, expiration, count, size = _FIXED.unpack_from(data, 0)
    reader = _Reader(data, _FIXED.size)
    exchange, key = reader.name(), reader.name()
    copies: tuple[bytes, ...] = ()
    hidden: tuple[bytes, ...] = ()
    deaths: tuple[Death, ...] = ()
    if data.startswith(_NO_MORE, reader.at):
        reader.at += len(_NO_MORE)
    else:
        copies, hidden = reader.names(), reader.names()
        deaths = tuple([reader.death() for _ in range(reader.count())])
    persistent = flags & _PERSISTENT != 0
    body = data[reader.at :]
    run = Run(exchange, key, body, count, size, persistent, priority, expiration, copies, hidden, deaths)
    run.format = format
    return run
