"""Bad input: the protocol's error or a closed connection, bounded memory, and no effect on other clients.

In each test a neighbour continues to produce over its own connection; at the end of the test, all its records
must be acknowledged and present.
"""

from __future__ import annotations

import contextlib
import gzip
import random
import resource
import socket
import struct
import zlib

import crc32c
import pytest
import zstandard

pytestmark = pytest.mark.fault

MIB = 1 << 20


@pytest.fixture
def daemon(shared_daemon):
    """One for the whole module: no test here may harm it."""
    return shared_daemon


def dial(daemon):
    host, port = daemon.address("kafka")
    connection = socket.create_connection((host, port), timeout=45)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def receive_all(connection) -> bytes:
    """Reads everything until the peer closes."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            data += piece
    return data


def answer_to(daemon, data: bytes, *, half_close: bool = True) -> bytes:
    """Sends bytes, shuts down the sending side, and returns all bytes received until the daemon closes."""
    with dial(daemon) as connection:
        with contextlib.suppress(ConnectionError):  # it may close before it has read everything
            connection.sendall(data)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
        return receive_all(connection)


# --- bytes that are no requests


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),  # a TLS ClientHello
        b"\x00" * 4096,
        b"\xff" * 4096,
        b"AMQP\x00\x00\x09\x01",
        b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00",
    ],
    ids=["http", "tls", "zeros", "ones", "amqp", "mqtt"],
)
def test_other_protocols_are_closed(daemon, neighbour, data):
    assert answer_to(daemon, data) == b""


def test_garbage_is_closed(daemon, neighbour, memory):
    rng = random.Random(1)
    for _ in range(200):
        assert answer_to(daemon, rng.randbytes(rng.randrange(1, 3000))) == b""
    assert memory.peak_growth() < 32 * MIB


def test_garbage_behind_a_valid_header_is_answered_or_closed(
    daemon, neighbour, memory, framed, topic, read_values
):
    """Every served API, with a body of random bytes."""
    rng = random.Random(2)
    for key in range(70):
        for version in range(13):
            answer_to(daemon, framed(key, version, rng.randbytes(rng.randrange(200))))
    assert memory.peak_growth() < 64 * MIB
    assert read_values(daemon.kafka, topic) == [(0, b"first")]


def test_truncated_frames_do_nothing(daemon, neighbour, wire_client, topic, read_values):
    request = wire_client.produce(topic, 0, wire_client.build_batch([(b"k", b"second")]))
    request.with_header(correlation_id=1, client_id="me")
    data = request.encode(framed=True, header=True)
    for end in range(0, len(data), 3):
        assert answer_to(daemon, data[:end]) == b""
    assert read_values(daemon.kafka, topic) == [(0, b"first")]
    # the half-close is no reason to drop a complete request
    assert answer_to(daemon, data) != b""
    assert read_values(daemon.kafka, topic) == [(0, b"first"), (1, b"second")]


# --- lengths


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, 101 * MIB, 2**31 - 1])
def test_impossible_frame_sizes_are_closed_at_once(daemon, neighbour, memory, size):
    assert answer_to(daemon, struct.pack(">i", size) + b"x" * 100, half_close=False) == b""
    assert memory.peak_growth() < 16 * MIB


def test_announced_bytes_are_not_allocated(daemon, neighbour, memory):
    """Two hundred connections announce 90 MiB each, and send almost none of it."""
    head = struct.pack(">ihhi", 90 * MIB, 0, 7, 1) + struct.pack(">h", 2) + b"me"
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(dial(daemon)).sendall(head)
        neighbour.goes_on()
        assert memory.peak_growth() < 64 * MIB


@pytest.mark.parametrize(
    ("key", "version", "flexible", "body"),
    [
        (3, 1, False, struct.pack(">i", 2**31 - 1)),  # Metadata: 2^31 - 1 topics
        (3, 9, True, b"\xff\xff\xff\xff\x0f"),
        (3, 9, True, b"\x02\xff\xff\xff\xff\x0f"),  # one topic with a name of 4 GiB
        (3, 9, True, b"\xff" * 20),  # a varint that does not end
        (0, 7, False, struct.pack(">hhii", -1, -1, 1000, 2**31 - 1)),  # Produce: topics
        (0, 9, True, b"\x00" + struct.pack(">hi", -1, 1000) + b"\xff\xff\xff\xff\x0f"),
        (1, 11, False, struct.pack(">iiiibiii", -1, 100, 1, 1000, 0, 0, -1, 2**31 - 1)),  # Fetch: topics
        (8, 7, False, struct.pack(">h", 32767) + b"x"),  # OffsetCommit: a group id that is missing
        (19, 5, True, b"\xff\xff\xff\xff\x0f"),  # CreateTopics
        (36, 0, False, struct.pack(">i", 2**31 - 1)),  # SaslAuthenticate, which is not served
    ],
)
def test_length_bombs_inside_requests_are_closed(
    daemon, neighbour, memory, framed, key, version, flexible, body
):
    assert answer_to(daemon, framed(key, version, body, flexible=flexible)) == b""
    assert memory.peak_growth() < 16 * MIB


# --- what is not served


def test_an_unknown_version_of_api_versions_gets_error_35_in_version_0(daemon, neighbour, framed):
    data = answer_to(daemon, framed(18, 99, b"\0\0\0", flexible=True))
    size, correlation, code, count = struct.unpack_from(">iihi", data)
    assert (size, correlation, code) == (len(data) - 4, 7, 35)
    assert len(data) == 4 + 4 + 2 + 4 + 6 * count
    offered = [struct.unpack_from(">hhh", data, 14 + 6 * n) for n in range(count)]
    assert offered == [(18, 0, 4)]  # the version range to use instead, as in KIP-511


@pytest.mark.parametrize(("key", "version"), [(9999, 0), (-1, 0), (1, 99), (3, -1), (0, 99), (71, 0)])
def test_unknown_keys_and_versions_are_closed(daemon, neighbour, framed, key, version):
    assert answer_to(daemon, framed(key, version, bytes(50))) == b""


def test_old_produce_is_answered_unsupported(daemon, neighbour, framed, topic, read_values):
    name = struct.pack(">h", len(topic)) + topic.encode()
    body = struct.pack(">hii", -1, 1000, 1) + name + struct.pack(">iii", 1, 0, 10) + bytes(10)
    data = answer_to(daemon, framed(0, 2, body))
    assert data[-4:] == struct.pack(">i", 0) or len(data) > 20  # throttle time ends the body
    (code,) = struct.unpack_from(">h", data, 8 + 4 + len(name) + 4 + 4)
    assert code == 35
    assert read_values(daemon.kafka, topic) == [(0, b"first")]


# --- batches

CORRUPT, INVALID_RECORD, TOO_LARGE = 2, 87, 10


def reseal(batch: bytearray) -> bytes:
    """Sets the correct CRC-32C, which covers everything from the attributes on."""
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    return bytes(batch)


def changed(batch: bytes, form: str, position: int, value: int, *, seal: bool = True) -> bytes:
    data = bytearray(batch)
    struct.pack_into(form, data, position, value)
    return reseal(data) if seal else bytes(data)


def send_batch(daemon, wire_client, topic, batch):
    connection = wire_client.Connection(daemon.kafka)
    code, offset = wire_client.produced(connection.ask(wire_client.produce(topic, 0, batch)))
    assert wire_client.produced(
        connection.ask(wire_client.produce(topic, 5, wire_client.build_batch([(None, b"x")])))
    ) == (3, -1)  # the connection still works: an unknown partition gets its own error
    connection.close()
    return code, offset


@pytest.mark.parametrize("codec", range(5))
def test_a_wrong_crc_is_corrupt(daemon, neighbour, wire_client, topic, read_values, codec):
    batch = bytearray(wire_client.build_batch([(b"k", b"value" * 20)], codec))
    batch[-1] ^= 1
    assert send_batch(daemon, wire_client, topic, bytes(batch)) == (CORRUPT, -1)
    assert read_values(daemon.kafka, topic) == [(0, b"first")]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize(
    ("form", "position", "value"),
    [
        (">i", 57, 2),  # fewer records than the batch has
        (">i", 57, 4),
        (">i", 57, 0),
        (">i", 57, -1),
        (">i", 57, 2**31 - 1),
        (">i", 23, 0),  # last offset delta
        (">i", 23, 10),
        (">i", 23, -5),
    ],
)
def test_a_batch_whose_counts_lie_is_refused(
    daemon, neighbour, wire_client, topic, read_values, memory, codec, form, position, value
):
    batch = wire_client.build_batch([(b"k", b"v%d" % n) for n in range(3)], codec)
    code, _ = send_batch(daemon, wire_client, topic, changed(batch, form, position, value))
    assert code in (CORRUPT, INVALID_RECORD)
    assert read_values(daemon.kafka, topic) == [(0, b"first")]
    assert memory.peak_growth() < 32 * MIB


@pytest.mark.parametrize(
    ("form", "position", "value"),
    [
        (">i", 8, 10),  # batch length
        (">i", 8, 2**31 - 1),
        (">i", 8, -1),
        (">b", 16, 1),  # magic
        (">b", 16, 9),
        (">h", 21, 7),  # an unknown codec
        (">h", 21, 1),  # gzip, over bytes that are not gzip
        (">h", 21, 0x20),  # a control batch
    ],
)
def test_a_batch_with_a_lying_header_is_refused(
    daemon, neighbour, wire_client, topic, read_values, form, position, value
):
    batch = wire_client.build_batch([(b"k", b"v%d" % n) for n in range(3)])
    code, _ = send_batch(daemon, wire_client, topic, changed(batch, form, position, value))
    assert code != 0
    assert read_values(daemon.kafka, topic) == [(0, b"first")]


def test_random_damage_never_gets_in(daemon, neighbour, wire_client, topic, read_values):
    """Bytes of a valid batch are changed and its CRC corrected: it is refused, or stored and readable."""
    rng = random.Random(3)
    original = wire_client.build_batch([(b"key", b"v%d" % n) for n in range(5)])
    stored = 1
    for _ in range(300):
        data = bytearray(original)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(61, len(data))] = rng.randrange(256)
        code, offset = send_batch(daemon, wire_client, topic, reseal(data))
        assert code in (0, CORRUPT, INVALID_RECORD, 32)
        if code == 0:
            assert offset == stored
            stored += 5
    assert len(read_values(daemon.kafka, topic)) == stored


def bomb(codec: str, size: int) -> bytes:
    """Returns a batch of one record of `size` zeros, compressed."""
    value = varint(size)
    body_size = 1 + 1 + 1 + 1 + len(value) + size + 1
    head = varint(body_size) + b"\0\0\0\1" + value  # attributes, time, offset, a null key
    blocks = [bytes(MIB)] * (size // MIB)
    if codec == "gzip":
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        packed = packer.compress(head) + b"".join(packer.compress(block) for block in blocks)
        packed += packer.compress(b"\0") + packer.flush()
    else:
        stream = zstandard.ZstdCompressor().compressobj()
        packed = stream.compress(head) + b"".join(stream.compress(block) for block in blocks)
        packed += stream.compress(b"\0") + stream.flush()
    attributes = {"gzip": 1, "zstd": 4}[codec]
    batch = bytearray(
        struct.pack(">qiibIhiqqqhii", 0, 49 + len(packed), -1, 2, 0, attributes, 0, 0, 0, -1, -1, -1, 1)
    )
    return reseal(batch + packed)


def varint(number: int) -> bytes:
    """Encodes a zigzag varint."""
    number <<= 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_decompression_bomb_is_refused(daemon, neighbour, wire_client, topic, read_values, memory, codec):
    batch = bomb(codec, 900 * MIB)
    assert len(batch) < MIB
    for _ in range(3):
        assert send_batch(daemon, wire_client, topic, batch) == (TOO_LARGE, -1)
    assert memory.peak_growth() < 200 * MIB
    assert read_values(daemon.kafka, topic) == [(0, b"first")]


def test_what_compresses_well_is_no_bomb(daemon, neighbour, wire_client, topic):
    """Kafka limits only the compressed batch; 8 MiB of the same byte take 8 KiB."""
    assert send_batch(daemon, wire_client, topic, bomb("gzip", 8 * MIB)) == (0, 1)


def test_the_bomb_is_built_right():
    """Otherwise it would be refused for its form."""
    plain = gzip.decompress(bomb("gzip", 2 * MIB)[61:])
    length = varint(2 * MIB)
    record = b"\0\0\0\1" + length + bytes(2 * MIB) + b"\0"
    assert plain == varint(len(record)) + record


# --- many, slow and non-reading clients


def test_ten_thousand_idle_connections(daemon, neighbour, memory, require, until):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 10_000
    require(hard >= wanted + 500, f"the limit of open files is {hard}, and {wanted} connections take more")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 500), hard))
    connections = []
    try:
        for _ in range(wanted):
            connections.append(dial(daemon))
        neighbour.goes_on()
        with dial(daemon) as last:  # ApiVersions 0
            last.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
            assert len(last.recv(4)) == 4
        per_connection = (memory.now() - memory.start) / wanted
        print(f"{per_connection:.0f} bytes of resident memory for each idle connection")
        assert per_connection < 16 * 1024
    finally:
        for connection in connections:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    neighbour.goes_on()


def test_clients_that_never_read(daemon, neighbour, memory, wire_client, topic):
    """Thirty clients request megabytes repeatedly and read none of it."""
    feeder = wire_client.Connection(daemon.kafka)
    for _ in range(20):
        batch = wire_client.build_batch([(None, random.Random(4).randbytes(500_000))])
        assert wire_client.produced(feeder.ask(wire_client.produce(topic, 0, batch)))[0] == 0
    feeder.close()
    name = struct.pack(">h", len(topic)) + topic.encode()
    body = struct.pack(">iiiibiii", -1, 100, 1, 50 * MIB, 0, 0, -1, 1) + name
    body += struct.pack(">iiiqqi", 1, 0, -1, 0, 0, 50 * MIB) + struct.pack(">ih", 0, 0)
    request = struct.pack(">hhih", 1, 11, 1, -1) + body
    frame = struct.pack(">i", len(request)) + request
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            connection = stack.enter_context(dial(daemon))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                connection.send(frame * 500)
        for _ in range(5):
            neighbour.goes_on()
        print(f"{memory.peak_growth() / MIB:.0f} MiB of resident memory for 30 clients that do not read")
        assert memory.peak_growth() < 450 * MIB
        before = memory.bytes_read()
    for _ in range(5):
        neighbour.goes_on()
    assert memory.bytes_read() - before < 512 * MIB  # nothing is read from disk for clients that have gone


def test_slow_loris(daemon, neighbour, memory, until):
    """Three hundred clients send a request one byte at a time; each is answered in the end."""
    request = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(dial(daemon)) for _ in range(300)]
        for number in range(len(request)):
            for connection in connections:
                connection.sendall(request[number : number + 1])
            neighbour.goes_on()
        for connection in connections:
            assert len(connection.recv(4)) == 4
    assert memory.peak_growth() < 32 * MIB


def test_a_client_that_vanishes_mid_request(daemon, neighbour, wire_client, topic, read_values):
    """The client resets the connection at every point of a request."""
    request = wire_client.produce(topic, 0, wire_client.build_batch([(b"k", b"x" * 2000)]))
    request.with_header(correlation_id=1, client_id="me")
    data = request.encode(framed=True, header=True)
    for end in range(1, len(data), 101):
        connection = dial(daemon)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(data[:end])
        connection.close()
    assert read_values(daemon.kafka, topic) == [(0, b"first")]
