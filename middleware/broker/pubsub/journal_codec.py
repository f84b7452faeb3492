"""The journal's entries, inside blocks: `kind (1 byte) | fields`. Numbers are varints (LEB128, unsigned).

| kind          | fields                                                                                   |
| ------------- | ---------------------------------------------------------------------------------------- |
| NEXT          | the number that the next message gets                                                    |
| MESSAGE       | number, flags (QoS, 4: retain), stamp, expiry (float64), topic, properties, payload |
| OWE           | session, message, options (1 byte: QoS, 4: retain, 8: sent), identifier count, identifiers |
| DONE          | session, first message, count: these are settled                                          |
| SENT          | session, message, packet id: QoS 2 only                                                  |
| RECEIVED      | session, message, packet id: the client has it                                            |
| COMPLETED     | session, packet id                                                                        |
| TAKEN         | session, packet id: a publish of QoS 2 was handed over                                    |
| RELEASED      | session, packet id: that publish is released                                              |
| SESSION       | session, expiry in seconds, gone at (float64), client id                                  |
| SUBSCRIBED    | session, options, identifier, filter                                                      |
| UNSUBSCRIBED  | session, filter                                                                           |
| ENDED         | session                                                                                   |
| RETAINED      | message                                                                                   |
| CLEARED       | topic                                                                                     |
| STATE         | session: the entries that follow replace its state, except for the messages owed to it    |
| PASSED        | host, epoch, stream, number: another host's stream is taken up to it; 0: stream forgotten |
| HANDED        | session, first message, count: these, of QoS 1, may have been sent to the client          |
| WILL          | session, flags (QoS, 4: retain), delay, 1 + lifetime in seconds (0: no expiry), topic,    |
|               | properties, payload                                                                       |
| NO_WILL       | session                                                                                   |
| RUN           | first number, count, format, publishes (`wire.mqtt_publish`): messages of QoS 1 with      |
|               | consecutive numbers                                                                       |
| OWE_RUN       | session, first message, count: of a run                                                   |
| OWNER         | session, name of the user to whom the client id belongs; none: nobody                    |
| FILTERED      | session, text of the filter, topic filter: of the subscription                            |
| OWE_SHARED    | as OWE, then the shared subscription: name, "/", filter                                   |

A byte string is its size followed by the bytes.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_f64_be, write_f64_be

from .message import (
    Creditor,
    Message,
    Owed,
    PromisedRun,
    SubscriptionRecord,
    WillRecord,
    numbered_messages,
)

NEXT: Final = 1
MESSAGE: Final = 2
OWE: Final = 3
DONE: Final = 4
SENT: Final = 5
RECEIVED: Final = 6
COMPLETED: Final = 7
TAKEN: Final = 8
RELEASED: Final = 9
SESSION: Final = 10
SUBSCRIBED: Final = 11
UNSUBSCRIBED: Final = 12
ENDED: Final = 13
RETAINED: Final = 14
CLEARED: Final = 15
STATE: Final = 16
PASSED: Final = 17
HANDED: Final = 18
WILL: Final = 19
NO_WILL: Final = 20
RUN: Final = 21
OWE_RUN: Final = 22
OWE_SHARED: Final = 23
OWNER: Final = 24
FILTERED: Final = 25

_RETAIN: Final = 4
_SENT: Final = 8


def put(out: BytesWriter, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def put_bytes(out: BytesWriter, data: bytes) -> None:
    put(out, len(data))
    out.write(data)


def put_entry(out: BytesWriter, kind: int, first: int, second: int) -> None:
    """Writes an entry of two numbers."""
    out.append(kind)
    put(out, first)
    put(out, second)


def put_message(out: BytesWriter, message: Message) -> None:
    out.append(MESSAGE)
    put(out, message.number)
    out.append(message.qos | (_RETAIN if message.retain else 0))
    put(out, message.stamp)
    write_f64_be(out, message.expires_at)
    put_bytes(out, message.topic)
    put_bytes(out, message.properties)
    put_bytes(out, message.payload)


def put_run(out: BytesWriter, run: PromisedRun) -> None:
    put_run_head(out, run)
    out.write(run.data)


def put_run_head(out: BytesWriter, run: PromisedRun) -> None:
    """Writes all of a run's entry but the publishes at its end."""
    put_entry(out, RUN, run.number, run.count)
    out.append(run.format)
    put(out, len(run.data))


def put_owed_run(out: BytesWriter, session: int, run: PromisedRun) -> None:
    put_entry(out, OWE_RUN, session, run.number)
    put(out, run.count)


def put_owed(out: BytesWriter, session: int, owed: Owed) -> None:
    out.append(OWE_SHARED if owed.share else OWE)
    put(out, session)
    put(out, owed.message.number)
    out.append(owed.qos | (_RETAIN if owed.retain else 0) | (_SENT if owed.sent else 0))
    put(out, len(owed.identifiers))
    for identifier in owed.identifiers:
        put(out, identifier)
    if owed.share:
        put_bytes(out, owed.share)


def put_session(out: BytesWriter, record: Creditor) -> None:
    out.append(SESSION)
    put(out, record.number)
    put(out, record.expiry)
    write_f64_be(out, record.gone_at)
    put_bytes(out, record.client_id.encode())


def put_owner(out: BytesWriter, record: Creditor) -> None:
    out.append(OWNER)
    put(out, record.number)
    put_bytes(out, record.user.encode())


def put_subscribed(out: BytesWriter, session: int, filter: bytes, one: SubscriptionRecord) -> None:
    out.append(SUBSCRIBED)
    put(out, session)
    put(out, one.options)
    put(out, one.identifier)
    put_bytes(out, filter)
    if one.content:
        out.append(FILTERED)
        put(out, session)
        put_bytes(out, one.content.encode())
        put_bytes(out, filter)


def put_will(out: BytesWriter, session: int, will: WillRecord) -> None:
    out.append(WILL)
    put(out, session)
    out.append(will.qos | (_RETAIN if will.retain else 0))
    put(out, will.delay)
    put(out, will.lives + 1)
    put_bytes(out, will.topic)
    put_bytes(out, will.properties)
    put_bytes(out, will.payload)


def put_passed(out: BytesWriter, stream: tuple[int, int, int], number: int) -> None:
    out.append(PASSED)
    for part in stream:
        put(out, part)
    put(out, number)


def put_state(out: BytesWriter, record: Creditor) -> None:
    """Writes the state of a session, except for the messages owed to it."""
    put_session(out, record)
    if record.user:
        put_owner(out, record)
    out.append(STATE)
    put(out, record.number)
    if record.will is not None:
        put_will(out, record.number, record.will)
    for filter, subscription in record.subscriptions.items():
        put_subscribed(out, record.number, filter, subscription)
    for packet_id in record.incoming:
        put_entry(out, TAKEN, record.number, packet_id)
    for packet_id, message in record.sent.items():
        put_entry(out, SENT, record.number, message)
        put(out, packet_id)
    for packet_id in record.released:
        put_entry(out, RECEIVED, record.number, 0)
        put(out, packet_id)


class EntryReader:
    """A reader of the fields of a block's entries. Raises IndexError if the block ends within one."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    @property
    def more(self) -> bool:
        return self.position < len(self.data)

    def byte(self) -> int:
        found = self.data[self.position]
        self.position += 1
        return found

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def real(self) -> float:
        found = read_f64_be(self.data, self.position)
        self.position += 8
        return found

    def some(self) -> bytes:
        size = self.number()
        begin = self.position
        self.position += size
        if self.position > len(self.data):
            raise IndexError("a field is longer than its block")
        return self.data[begin : self.position]

    def message(self) -> Message:
        number = self.number()
        flags = self.byte()
        stamp = self.number()
        expires_at = self.real()
        topic, properties, payload = self.some(), self.some(), self.some()
        found = Message(topic, payload, flags & 3, bool(flags & _RETAIN), properties, expires_at)
        found.number = number
        found.stamp = stamp
        return found

    def run(self) -> list[Message]:
        """Reads the messages of a RUN."""
        number, count, format = self.number(), self.number(), self.byte()
        run = PromisedRun(format, self.some(), count, 0)
        run.number = number
        return numbered_messages(run)

    def owed(self, message: Message) -> Owed:
        """Reads the fields of an OWE after session and message; an OWE_SHARED has one more."""
        options = self.byte()
        identifiers = tuple([self.number() for _ in range(self.number())])
        found = Owed(message, options & 3, bool(options & _RETAIN), identifiers)
        found.sent = bool(options & _SENT)
        return found

    def will(self) -> WillRecord:
        """Reads the fields of a WILL after the session."""
        flags, delay, lives = self.byte(), self.number(), self.number() - 1
        topic, properties, payload = self.some(), self.some(), self.some()
        return WillRecord(topic, payload, flags & 3, bool(flags & _RETAIN), properties, delay, lives)
