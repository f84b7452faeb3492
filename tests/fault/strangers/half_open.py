"""Strangers at the TLS faces who begin a handshake and never end it, beside others who want to come in."""

from __future__ import annotations

import resource
import socket
import ssl
import time
from typing import Final

from treecast.middleware.daemon.process import split_address

from .place import Place

FACES: Final = ("kafka-tls", "mqtt-tls", "amqp-tls")
COUNT: Final = 10_000
_ROUND: Final = 250  # strangers of a round, after which somebody else comes in at each face
_PATIENCE_S: Final = 20.0
_SPARE: Final = 200  # descriptors of this process for all else


class Hindered(Exception):
    """Somebody else was not let in."""


def client_hello() -> bytes:
    """The first message of a TLS client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    sent = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), sent)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return sent.read()
    raise AssertionError("a handshake without an answer")


def shakes_hands(address: tuple[str, int]) -> float:
    """Returns the seconds of a whole handshake. Raises OSError if there is none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    began = time.monotonic()
    with socket.create_connection(address, _PATIENCE_S) as plain, context.wrap_socket(plain):
        return time.monotonic() - began


def half_open(place: Place) -> str:
    """`place.share` of COUNT handshakes, half of them cut within the first message. Raises Hindered."""
    hello, count = client_hello(), max(len(FACES), round(COUNT * place.share))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _SPARE
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if most < 0 else min(wanted, most), most))
    began, took = 0, [0.0]
    while began < count:
        for face in FACES:
            sockets = place.many(face, min(_ROUND, count - began))
            began += len(sockets)
            for number, one in enumerate(sockets):
                try:
                    one.send(hello if number % 2 else hello[: len(hello) // 2])
                except OSError:
                    continue  # it has had to give way already
            try:
                took.append(shakes_hands(split_address(place.address(face))))
            except OSError as error:
                raise Hindered(f"{face}: after {began} strangers nobody is let in: {error}") from error
    return f"{began} half-open; another's handshake took {max(took) * 1e3:.0f} ms at most"
