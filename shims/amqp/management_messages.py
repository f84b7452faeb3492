"""The management calls for messages: publishing one, and getting some from a queue."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from pamqp import commands, header
from pamqp.exceptions import PAMQPException

from treecast.middleware.broker.queues import AnyQueue, Part, messages, needs
from treecast.middleware.model.rights import IMPERSONATOR

from .codec import BASIC, AmqpError
from .codec_methods import write_table
from .codec_properties import HEADERS_BIT, joined, values
from .codec_publish import FORMAT
from .management_call import Call, Problem, Response, bad_request, number_of, table_of, text_of
from .management_definitions import Document, shown_table, shown_value
from .session_consuming import shown_data
from .session_host import AmqpHost
from .session_messages import single

_MOST: Final = 100_000  # messages per call
_BYTES: Final = 32 << 20  # bytes of bodies after which a call gets no more: the answer is made in memory
_HEADER: Final = bytes((0, BASIC)) + bytes(10)  # class, weight and size, which precede the properties
_PROPERTIES: Final = frozenset(commands.Basic.Properties.attributes())
_NUMBERS: Final = ("delivery_mode", "priority")
_REQUEUES: Final = {
    "ack_requeue_true": True,
    "ack_requeue_false": False,
    "reject_requeue_true": True,
    "reject_requeue_false": False,
}


class MessageCalls:
    """The messages of queues."""

    def __init__(self, host: AmqpHost) -> None:
        self._host = host

    def publish(self, call: Call) -> Response:
        vhost, name = call.vhost(used=True), call.exchange_name()
        body = call.body("routing_key", "properties", "payload", "payload_encoding")
        payload = _payload(text_of(body, "payload"), text_of(body, "payload_encoding"))
        if len(payload) > self._host.settings.max_message_bytes:
            raise bad_request("the message exceeds the size limit")
        call.permit(vhost, needs.to_publish(vhost, name, ()))
        vhost.router.may_publish(name)
        key = text_of(body, "routing_key").encode()
        if len(key) > 255:
            raise bad_request("routing_key is longer than 255 bytes")
        properties = _properties(table_of(body, "properties"))
        try:
            sender = None if call.has(IMPERSONATOR) else call.user
            run = single(name, key, properties, payload, sender, b"")
        except AmqpError as error:
            raise bad_request(error.text) from error
        call.permit(vhost, needs.to_publish(vhost, name, run.keys))
        routed, refused = vhost.publish(run, call.now)
        if refused:
            raise Problem(400, "rejected", "Unable to publish message. Check queue limits.")
        return Response(200, json.dumps({"routed": routed}).encode(), depends=run.persistent)

    def get(self, call: Call) -> object:
        """Returns messages of a queue, fewer than asked for if they are large. Requeued ones return to their
        positions after all are read."""
        vhost = call.vhost(used=True)
        queue = call.queue(vhost)
        body = call.body("ackmode", "count", "encoding")
        mode, encoding, cut = text_of(body, "ackmode"), text_of(body, "encoding"), -1
        if mode not in _REQUEUES:
            raise bad_request(f"Invalid ackmode value: {mode}. Valid values are: {', '.join(_REQUEUES)}")
        if encoding not in ("auto", "base64"):
            raise bad_request("Unsupported encoding. Please use auto or base64.")
        if "truncate" in body:
            cut = number_of(body, "truncate")
        call.permit(vhost, needs.to_read(queue.name))
        vhost.router.owned(queue.name, None)
        parts: list[Part] = []
        found: list[Document] = []
        size = 0
        try:
            for _ in range(min(number_of(body, "count"), _MOST)):
                if size >= _BYTES:
                    break
                part = queue.get(call.now, no_ack=mode == "ack_requeue_false")
                if part is None:
                    break
                parts.append(part)
                size += part.size
                found.append(_message(queue, part, encoding, cut))
        finally:
            if mode != "ack_requeue_false":
                self._give_back(queue, parts, mode, call.now)
            vhost.touched(queue, call.now)
        return found

    def _give_back(self, queue: AnyQueue, parts: list[Part], mode: str, now: float) -> None:
        for part in parts:
            if _REQUEUES[mode]:
                failed = mode == "reject_requeue_true"
                queue.requeue(part, 0, 1, None, now, failed=failed)
            else:
                queue.reject(part, 0, 1, None, now)
        queue.pump(now)


def _payload(payload: str, encoding: str) -> bytes:
    if encoding == "string":
        return payload.encode()
    if encoding != "base64":
        raise bad_request(f"unsupported payload_encoding {encoding}")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise bad_request("payload is not base64") from None


def _properties(given: Mapping[str, object]) -> bytes:
    """Encodes properties as in a content header: flags and values. Raises Problem."""
    unknown = [name for name in given if name not in _PROPERTIES]
    if unknown:
        raise bad_request(f"unknown properties: {', '.join(unknown)}")
    found: dict[str, object] = dict(given)
    for name in _NUMBERS:
        if name in found:
            found[name] = number_of(found, name)
    if "timestamp" in found:
        found["timestamp"] = datetime.fromtimestamp(number_of(found, "timestamp"), UTC)
    headers = table_of(found, "headers") if found.get("headers") is not None else None
    found.pop("headers", None)
    try:
        made = commands.Basic.Properties(**found)  # type: ignore[arg-type]
        encoded = values(header.ContentHeader(0, 0, made).marshal()[12:])
        if headers is not None:
            encoded[HEADERS_BIT] = write_table(headers)
        return joined(encoded)
    except (PAMQPException, TypeError, ValueError, OverflowError) as error:
        raise bad_request(f"properties: {error}") from error


def _message(queue: AnyQueue, part: Part, encoding: str, cut: int) -> Document:
    run = part.run
    assert run is not None
    ((properties, body),) = messages(shown_data(part, run))
    shown = body if cut < 0 else body[:cut]
    payload, spelling = _spelt(shown, encoding)
    return {
        "payload_bytes": len(body),
        "redelivered": part.redelivered,
        "exchange": run.exchange.decode(errors="replace"),
        "routing_key": run.key.decode(errors="replace"),
        "message_count": queue.ready,
        "properties": _shown_properties(properties) if run.format == FORMAT else {},
        "payload": payload,
        "payload_encoding": spelling,
    }


def _spelt(payload: bytes, encoding: str) -> tuple[str, str]:
    if encoding == "auto":
        try:
            return payload.decode(), "string"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(payload).decode(), "base64"


def _shown_properties(properties: bytes) -> Document:
    found = header.ContentHeader()
    found.unmarshal(_HEADER + properties)
    shown: Document = {}
    for name, value in dict(found.properties).items():
        if value in (None, "", {}):
            continue
        if isinstance(value, datetime):
            shown[name] = int(value.timestamp())
        else:
            shown[name] = shown_table(value) if isinstance(value, dict) else shown_value(value)
    return shown
