"""The loop guard: the header `x-treecast-hops`, an array of the sites that a message has left.

An entry is `CLUSTER/SITE`. A site sends no message on that left a site of its own cluster before: all sites
have it already. Messages of another cluster, whose agent is beside the same server, pass, and get an entry
more.

Pure.
"""

from __future__ import annotations

from typing import Final

from treecast.shims.amqp.codec_properties import (
    CONTENT_TYPE_BIT,
    HEADERS_BIT,
    USER_BIT,
    fields,
    joined,
    table_of,
    values,
)

NAME: Final = b"x-treecast-hops"
MARK: Final = bytes((len(NAME),)) + NAME  # as it begins in a table
USER: Final = b"x-treecast-user-id"
_ENCODING_BIT: Final = CONTENT_TYPE_BIT - 1
_ARRAY, _TEXT = b"A", b"S"


def entry(cluster: str, site: str) -> bytes:
    """Returns the encoded entry of a site: a long string."""
    text = f"{cluster}/{site}".encode()
    return _TEXT + len(text).to_bytes(4, "big") + text


def start(cluster: str) -> bytes:
    """Returns what the text of each entry of a cluster begins with."""
    return f"{cluster}/".encode()


def field(*entries: bytes) -> bytes:
    """Returns the header as a field of a table."""
    items = b"".join(entries)
    return MARK + _ARRAY + len(items).to_bytes(4, "big") + items


def with_field(properties: bytes, headers_begin: int, headers_end: int, added: bytes) -> bytes:
    """Returns encoded properties with one more header. `headers_begin`, `headers_end`: the bounds of the
    table in `properties`, 0 if it has none."""
    if headers_end:
        size = int.from_bytes(properties[headers_begin : headers_begin + 4], "big") + len(added)
        table = size.to_bytes(4, "big") + properties[headers_begin + 4 : headers_end] + added
        return properties[:headers_begin] + table + properties[headers_end:]
    flags = int.from_bytes(properties[:2], "big")
    at = 2
    for bit in (CONTENT_TYPE_BIT, _ENCODING_BIT):  # the only ones before the headers
        if flags >> bit & 1:
            at += 1 + properties[at]
    head = (flags | 1 << HEADERS_BIT).to_bytes(2, "big")
    return head + properties[2:at] + len(added).to_bytes(4, "big") + added + properties[at:]


def hops(properties: bytes) -> list[bytes]:
    """Returns the entries of a message's header, as encoded. What is no such array has none."""
    found = dict(_headers(values(properties))).get(NAME, b"")
    if found[:1] != _ARRAY or len(found) < 5:
        return []
    entries, at = [], 5
    while at + 5 <= len(found) and found[at : at + 1] == _TEXT:
        stop = at + 5 + int.from_bytes(found[at + 1 : at + 5], "big")
        entries.append(found[at:stop])
        at = stop
    return entries


def with_hop(properties: bytes, own: bytes) -> bytes:
    """Returns the properties with one more entry after those that they have."""
    found = values(properties)
    others = [(name, value) for name, value in _headers(found) if name != NAME]
    table = table_of(others)
    more = field(*hops(properties), own)
    found[HEADERS_BIT] = (len(table) - 4 + len(more)).to_bytes(4, "big") + table[4:] + more
    return joined(found)


def with_user_as_header(properties: bytes) -> bytes:
    """Returns the properties with the user id as a header: a server takes no user id but that of the user
    who publishes."""
    found = values(properties)
    user = found.pop(USER_BIT, None)
    if user is None:
        return properties
    text = _TEXT + len(user[1:]).to_bytes(4, "big") + user[1:]
    others = [(name, value) for name, value in _headers(found) if name != USER]
    found[HEADERS_BIT] = table_of([*others, (USER, text)])
    return joined(found)


def further_keys(properties: bytes) -> list[bytes]:
    """Returns the further routing keys in the header CC."""
    found = dict(_headers(values(properties))).get(b"CC", b"")
    keys, at = [], 5
    while found[:1] == _ARRAY and at + 5 <= len(found) and found[at : at + 1] == _TEXT:
        stop = at + 5 + int.from_bytes(found[at + 1 : at + 5], "big")
        keys.append(found[at + 5 : stop])
        at = stop
    return keys


def _headers(found: dict[int, bytes]) -> list[tuple[bytes, bytes]]:
    table = found.get(HEADERS_BIT)
    return fields(table) if table is not None else []
