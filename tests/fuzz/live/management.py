"""Requests to the admin address: management calls with random JSON, and HTTP that is almost right."""

from __future__ import annotations

import base64
import json
import random
from typing import Any
from urllib.parse import quote

from treecast.shims.amqp.management import CALLS

from .changes import NAMES, number, sometimes_changed

_OTHERS = ("/metrics", "/healthz", "/readyz", "/", "/api", "/api/index.html")
_KEYS = (
    *("password", "password_hash", "tags", "configure", "write", "read", "pattern", "definition", "apply-to"),
    *(
        "priority",
        "type",
        "durable",
        "auto_delete",
        "internal",
        "arguments",
        "routing_key",
        "payload",
        "headers",
    ),
    *("payload_encoding", "properties", "count", "ackmode", "encoding", "users", "queues", "exchanges"),
    *("bindings", "vhosts", "permissions", "policies", "source", "destination", "destination_type", "name"),
    *("vhost", "x-max-length", "message-ttl", "max-length", "delivery_mode", "expiration"),
)
_TEXTS = (
    *NAMES,
    "direct",
    "topic",
    "all",
    "queues",
    "string",
    "base64",
    "administrator",
    ".*",
    "(a|aa)+$",
    "[",
)
_QUERIES = (
    "",
    "",
    "?page=1&page_size=10",
    "?page=0",
    "?sort=name&name=a&use_regex=true",
    "?columns=name,",
    "?%ff",
)


def conversation(rng: random.Random) -> list[bytes]:
    return [_request(rng) for _ in range(rng.randrange(1, 8))]


def _request(rng: random.Random) -> bytes:
    method, path = _place(rng)
    body = _body(rng) if method in ("PUT", "POST") or rng.random() < 0.1 else b""
    secret = base64.b64encode(rng.choice((b"guest:guest",) * 9 + (b"a:b", b"x"))).decode()
    size = len(body) if rng.random() < 0.95 else number(rng, 32)
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {secret}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    return sometimes_changed(head.encode() + body, rng, 0.2)


def _place(rng: random.Random) -> tuple[str, str]:
    if rng.random() < 0.1:
        return rng.choice(("GET", "HEAD", "POST", "OPTIONS", "X" * 40)), rng.choice(_OTHERS)
    method, route, _ = rng.choice(CALLS)
    parts = [_part(one, rng) if one.startswith(":") else one for one in route.split("/")]
    return method, "/api/" + "/".join(parts) + rng.choice(_QUERIES)


def _part(parameter: str, rng: random.Random) -> str:
    if parameter == ":vhost" and rng.random() < 0.7:
        return "%2F"
    return quote(rng.choice(_TEXTS), safe="")


def _body(rng: random.Random) -> bytes:
    if rng.random() < 0.05:
        return rng.choice((b"", b"[" * 5000, b"null", b'{"a":1e999}', b'"\\ud800"', b"NaN", b"{" * 100))
    return sometimes_changed(json.dumps(_document(rng)).encode(), rng, 0.2)


def _document(rng: random.Random, depth: int = 0) -> Any:
    if depth < 4 and (depth == 0 or rng.random() < 0.3):
        return {rng.choice(_KEYS): _document(rng, depth + 1) for _ in range(rng.randrange(6))}
    if depth < 4 and rng.random() < 0.2:
        return [_document(rng, depth + 1) for _ in range(rng.randrange(4))]
    return rng.choice((None, True, False, 0, 1, -1, 5, 10**30, 0.5, number(rng, 64), rng.choice(_TEXTS)))
