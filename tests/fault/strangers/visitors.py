"""The strangers, by name: what each does at a daemon. All keep their connections until they are sent away."""

from __future__ import annotations

import base64
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from . import wire
from .half_open import half_open
from .place import ANSWER_S, Place

MIB: Final = 1 << 20
WRITE_S: Final = 5.0  # for which a stranger tries to write on: a daemon may stop reading, or close


def write(to: socket.socket, pieces: Iterable[bytes]) -> int:
    """Writes as far as the daemon takes it. Returns the bytes."""
    sent = 0
    to.settimeout(WRITE_S)
    with contextlib.suppress(OSError):
        for piece in pieces:
            view = memoryview(piece)
            while view:
                done = to.send(view)
                sent += done
                view = view[done:]
    return sent


def answered(to: socket.socket, seconds: float = ANSWER_S) -> str:
    """Returns what comes of a request, in words."""
    to.settimeout(seconds)
    began = time.monotonic()
    try:
        data = to.recv(65536)
    except TimeoutError:
        return f"nothing for {seconds:.0f} s"
    except OSError as error:
        return f"{error.strerror or error} after {time.monotonic() - began:.1f} s"
    return f"{len(data)} bytes after {time.monotonic() - began:.1f} s" if data else "it was closed"


def filled(place: Place, face: str, count: int, head: bytes, size: int) -> str:
    """Begins `count` requests at once and fills each with `size` bytes, without its end."""
    block, sent = bytes(MIB), [0] * count
    sockets = [place.connect(face) for _ in range(count)]

    def fill(index: int) -> None:
        sent[index] = write(sockets[index], [head, *[block] * (size // MIB)])

    threads = [threading.Thread(target=fill, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return f"{sum(sent) // MIB} MiB were taken of {count * size // MIB}"


def dropped(place: Place, face: str, count: int, head: bytes, size: int) -> str:
    """The same one after the other, each with a connection of its own that ends."""
    block, sent = bytes(MIB), 0
    for _ in range(count):
        one = place.connect(face)
        sent += write(one, [head, *[block] * (size // MIB)])
        one.close()
    return f"{sent // MIB} MiB were taken in {count} connections"


# --- Kafka


def kafka_unfinished(place: Place) -> str:
    return filled(place, "kafka", 10, wire.unfinished_request(100 * MIB), 95 * MIB)


def kafka_dropped(place: Place) -> str:
    return dropped(place, "kafka", 15, wire.unfinished_request(100 * MIB), 95 * MIB)


def kafka_bombs(place: Place) -> str:
    to = place.connect("kafka")
    to.sendall(wire.metadata([b"bombs"]))
    answered(to)
    batch = wire.bomb(60 * MIB)
    write(to, [wire.produce(b"bombs", [batch] * 150)])
    return answered(to)


def kafka_names(place: Place) -> str:
    to = place.connect("kafka")
    write(to, [wire.metadata([b"name-%06d" % number for number in range(100_000)])])
    return answered(to)


def kafka_patterns(place: Place) -> str:
    to = place.connect("kafka")
    to.sendall(wire.metadata([b"a" * 249]))
    answered(to)
    for number in range(10):
        write(
            to, [wire.heartbeat(b"g%d" % number, b"A" * 21 + b"%d" % number, b"((a?){780}){3}a*|%d" % number)]
        )
        last = answered(to)
    return last


def kafka_members(place: Place) -> str:
    """Members of classic groups with 20 MiB of metadata each."""
    data = bytes(20 * MIB)
    for number in range(5):
        to = place.connect("kafka")
        body = wire.text(b"group-%d" % number) + struct.pack(">ii", 1_800_000, 1_800_000) + wire.text(b"")
        body += wire.text(b"consumer") + struct.pack(">i", 1) + wire.text(b"range")
        sent = write(to, [wire.request(11, 3, body + struct.pack(">i", len(data)) + data)])
    return f"{sent // MIB} MiB each"


def kafka_versions(place: Place) -> str:
    """A client that asks in a version never offered, and connects again as fast as it can."""
    until, count = time.monotonic() + 5, 0
    while time.monotonic() < until:
        to = place.connect("kafka")
        write(to, [wire.request(1, 90, b"")])
        answered(to, 2)
        to.close()
        count += 1
    return f"{count} connections in 5 s"


# --- MQTT


def mqtt_connect_properties(place: Place) -> str:
    to = place.connect("mqtt")
    count = (16 * MIB - 200) // len(wire.EMPTY_USER_PROPERTY)
    write(to, [wire.connect(b"stranger", wire.EMPTY_USER_PROPERTY * count)])
    return answered(to)


def mqtt_publish_properties(place: Place) -> str:
    to = _mqtt_client(place)
    count = (16 * MIB - 200) // len(wire.EMPTY_USER_PROPERTY)
    write(to, [wire.publish(b"a/b", wire.EMPTY_USER_PROPERTY * count)])
    return answered(to)


def mqtt_filters(place: Place) -> str:
    to = _mqtt_client(place)
    write(to, [wire.subscribe([b"/" * 190 + b"%d" % number for number in range(20_000)])])
    return answered(to)


def mqtt_many_filters(place: Place) -> str:
    to = _mqtt_client(place)
    write(to, [wire.subscribe([b"f/%d" % number for number in range(100_000)])])
    return answered(to)


def mqtt_levels(place: Place) -> str:
    to = _mqtt_client(place)
    write(to, [wire.subscribe([b"#", b"+/#", b"+/+/#"])])
    for number in range(30):
        write(to, [wire.publish(b"/" * 65_000 + b"%d" % number)])
    return answered(to)


def mqtt_unfinished(place: Place) -> str:
    return filled(place, "mqtt", 30, wire.unfinished_packet(0x10, 16 * MIB - 1), 15 * MIB)


def mqtt_passwords(place: Place) -> str:
    return _log_ins(place, "mqtt", [wire.connect(b"", user=(b"guest", b"wrong"))])


def _mqtt_client(place: Place) -> socket.socket:
    to = place.connect("mqtt")
    to.sendall(wire.connect(b"stranger", user=(b"guest", b"guest")))
    answered(to)
    return to


# --- AMQP


def amqp_frame(place: Place) -> str:
    to = place.connect("amqp")
    to.sendall(wire.AMQP_HEADER)
    answered(to)
    taken = write(to, [struct.pack(">BHI", 1, 0, 2_000_000_000), *[bytes(MIB)] * 300])
    return f"{taken // MIB} MiB were taken"


def amqp_passwords(place: Place) -> str:
    return _log_ins(place, "amqp", [wire.AMQP_HEADER, wire.start_ok(b"guest", b"wrong")])


def _log_ins(place: Place, face: str, lines: list[bytes]) -> str:
    """Twenty strangers try wrong passwords for 8 s, as fast as they get answers."""
    until, tried = time.monotonic() + 8, []

    def guess() -> None:
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                to = place.connect(face)
                for line in lines:
                    to.sendall(line)
                    answered(to, 10)
                to.close()
                tried.append(1)

    threads = [threading.Thread(target=guess, daemon=True) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return f"{len(tried)} tries in 8 s"


# --- admin and control


def admin_bodies(place: Place) -> str:
    head = b"POST /api/definitions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 67000000\r\n\r\n"
    return filled(place, "admin", 30, head, 60 * MIB)


def admin_silent(place: Place) -> str:
    for to in place.many("admin", 600):
        with contextlib.suppress(OSError):
            to.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-a: ")
    return "600 connections"


def control_silent(place: Place) -> str:
    place.many("control", 600)
    return "600 connections"


def admin_pattern(place: Place) -> str:
    """A user with the tag `management` looks for a queue by a nested repetition."""
    place.call("/api/users/viewer", "PUT", {"password": "viewer", "tags": "management"})
    rights = dict.fromkeys(("configure", "write", "read"), "^viewer-.*")
    place.call("/api/permissions/%2F/viewer", "PUT", rights)
    place.call("/api/queues/%2F/viewer-" + "a" * 60, "PUT", {"durable": True}, "viewer")
    began = time.monotonic()
    status, _ = place.call(
        "/api/queues?page=1&use_regex=true&name=%28a%7Caa%29%2B%24x", "GET", None, "viewer"
    )
    return f"{status} after {time.monotonic() - began:.1f} s"


def admin_policy(place: Place) -> str:
    """An administrator's policy with such a pattern, and a queue that it is tried on."""
    place.call(
        "/api/policies/%2F/nested",
        "PUT",
        {"pattern": "(a|aa)+$x", "definition": {"max-length": 10}, "apply-to": "queues"},
    )
    began = time.monotonic()
    status, _ = place.call("/api/queues/%2F/" + "a" * 60, "PUT", {"durable": False, "auto_delete": True})
    return f"{status} after {time.monotonic() - began:.1f} s"


def admin_depth(place: Place) -> str:
    to = place.connect("admin")
    secret = base64.b64encode(b"guest:guest").decode()
    body = b"[" * 2_000_000
    head = f"PUT /api/queues/%2F/deep HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {secret}\r\n"
    write(to, [f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode(), body])
    return answered(to)


def control_unfinished(place: Place) -> str:
    """Calls of gRPC without a token that never end, each with almost 4 MiB."""
    import h2.config
    import h2.connection

    total = 0
    for _ in range(8):
        to = place.connect("control")
        http2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        http2.initiate_connection()
        total += _feed(to, http2)
    return f"{total // MIB} MiB were taken"


def _feed(to: socket.socket, http2: object) -> int:
    """Opens 90 calls and fills them as far as flow control lets it, for 3 s. Returns the bytes."""
    import h2.connection
    import h2.exceptions

    assert isinstance(http2, h2.connection.H2Connection)
    headers = [(":method", "POST"), (":scheme", "http"), (":path", "/treecast.v1.Coordinator/Attach")]
    headers += [(":authority", "x"), ("content-type", "application/grpc")]
    sent: dict[int, int] = {}
    until = time.monotonic() + 3
    to.settimeout(0.05)
    with contextlib.suppress(OSError, h2.exceptions.ProtocolError):
        while time.monotonic() < until:
            to.sendall(http2.data_to_send())
            try:
                http2.receive_data(to.recv(MIB) or b"")
            except TimeoutError:
                pass
            if not sent:
                for _ in range(90):
                    number = http2.get_next_available_stream_id()
                    http2.send_headers(number, headers)
                    http2.send_data(number, b"\0" + struct.pack(">I", 4 * MIB - 10))
                    sent[number] = 5
            for number in sent:
                room = min(
                    http2.local_flow_control_window(number),
                    http2.max_outbound_frame_size,
                    4 * MIB - sent[number],
                )
                if room > 0:
                    http2.send_data(number, bytes(room))
                    sent[number] += room
    return sum(sent.values())


class Visitor(Struct, frozen=True):
    """A stranger. `user`: it has an account, or none is needed; a mere stranger otherwise. `tls`: it
    comes to faces with TLS.
    """

    act: Callable[[Place], str]
    what: str
    user: bool = False
    tls: bool = False


VISITORS: Final[Mapping[str, Visitor]] = {
    "kafka-unfinished": Visitor(kafka_unfinished, "10 requests of 100 MiB that never end"),
    "kafka-dropped": Visitor(kafka_dropped, "15 such requests, one after the other, each hung up"),
    "kafka-bombs": Visitor(
        kafka_bombs, "a Produce that names a partition 150 times, each time 60 MiB in zstd"
    ),
    "kafka-names": Visitor(kafka_names, "a Metadata with 100,000 new topics"),
    "kafka-patterns": Visitor(kafka_patterns, "10 expensive subscriptions by regular expression"),
    "kafka-members": Visitor(kafka_members, "5 group members with 20 MiB of metadata"),
    "kafka-versions": Visitor(kafka_versions, "a client that asks in a version never offered"),
    "mqtt-connect-properties": Visitor(mqtt_connect_properties, "a CONNECT with 3.3 million properties"),
    "mqtt-publish-properties": Visitor(
        mqtt_publish_properties, "a PUBLISH with 3.3 million properties", True
    ),
    "mqtt-filters": Visitor(mqtt_filters, "a SUBSCRIBE with 20,000 filters of 191 levels", True),
    "mqtt-many-filters": Visitor(mqtt_many_filters, "a SUBSCRIBE with 100,000 filters", True),
    "mqtt-levels": Visitor(mqtt_levels, "30 PUBLISH with 65,000 levels", True),
    "mqtt-unfinished": Visitor(mqtt_unfinished, "30 CONNECT of 16 MiB that never end"),
    "mqtt-passwords": Visitor(mqtt_passwords, "20 at a time guess a password"),
    "amqp-frame": Visitor(amqp_frame, "a frame of 2 GB before the log-in"),
    "amqp-passwords": Visitor(amqp_passwords, "20 at a time guess a password"),
    "admin-bodies": Visitor(admin_bodies, "30 bodies of 64 MiB without Authorization"),
    "admin-silent": Visitor(admin_silent, "600 connections that say nothing more"),
    "admin-pattern": Visitor(admin_pattern, "a search by a nested repetition", True),
    "admin-policy": Visitor(admin_policy, "a policy with a nested repetition", True),
    "admin-depth": Visitor(admin_depth, "JSON of 2,000,000 levels", True),
    "tls-half-open": Visitor(half_open, "10,000 handshakes of TLS that never end", tls=True),
    "control-silent": Visitor(control_silent, "600 connections that say nothing"),
    "control-unfinished": Visitor(control_unfinished, "720 calls without a token that never end"),
}
