"""Retained messages by topic: a trie of names that filters are matched against.

Messages are stamped. The highest stamp of a topic wins; hosts that get the same messages in different orders
thus keep the same one. On joined hosts, a topic whose message was removed has a tombstone, a message without
payload: it keeps the removed message from coming back from a host that missed the removal.
"""

from __future__ import annotations

from typing import Final

from .message import NEVER, Message

_PLUS: Final = b"+"
_HASH: Final = b"#"
_SLASH: Final = b"/"
_DOLLAR: Final = b"$"


class _Name:
    """A node of the trie: one level of a name."""

    def __init__(self) -> None:
        self.children: dict[bytes, _Name] | None = None
        self.message: Message | None = None


class RetainedStore:
    """The retained messages of one host: at most `limit` messages, and as many tombstones."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        self.tombstones = 0
        self._root = _Name()

    def get(self, topic: bytes) -> Message | None:
        name: _Name | None = self._root
        for level in topic.split(_SLASH):
            if name is None or name.children is None:
                return None
            name = name.children.get(level)
        return name.message if name is not None else None

    def put(self, message: Message) -> Message | None:
        """Stores `message` for its topic; returns what it replaces. The caller checks `full` first."""
        name = self._root
        for level in message.topic.split(_SLASH):
            if name.children is None:
                name.children = {}
            child = name.children.get(level)
            if child is None:
                child = _Name()
                name.children[level] = child
            name = child
        before = name.message
        name.message = message
        self._count(before, -1)
        self._count(message, 1)
        return before

    def _count(self, message: Message | None, change: int) -> None:
        if message is None:
            return
        if message.payload:
            self.count += change
        else:
            self.tombstones += change

    def full(self, topic: bytes) -> bool:
        """Whether the store is full and has no message for `topic`."""
        return self.count >= self.limit and self.get(topic) is None

    def remove(self, topic: bytes) -> Message | None:
        """Removes and returns a topic's message."""
        path = [self._root]
        levels = topic.split(_SLASH)
        for level in levels:
            children = path[-1].children
            child = children.get(level) if children is not None else None
            if child is None:
                return None
            path.append(child)
        before = path[-1].message
        if before is None:
            return None
        path[-1].message = None
        self._count(before, -1)
        _prune(path, levels)
        return before

    def match(self, filter: bytes, wall: float) -> list[Message]:
        """Returns the messages of all topics that `filter` matches and that have not expired at `wall`."""
        return [message for message in self.match_all(filter, wall) if message.payload]

    def match_all(self, filter: bytes, wall: float) -> list[Message]:
        """As `match`, with tombstones."""
        found: list[Message] = []
        levels = filter.split(_SLASH)
        frontier = [self._root]
        for depth, level in enumerate(levels):
            if level == _HASH:
                _collect(frontier, depth == 0, found)
                return _alive(found, wall)
            frontier = _step(frontier, level, depth == 0)
        for name in frontier:
            if name.message is not None:
                found.append(name.message)
        return _alive(found, wall)

    def all(self) -> list[Message]:
        """Returns all messages, with tombstones."""
        found: list[Message] = []
        _collect([self._root], False, found)
        return found


def _step(frontier: list[_Name], level: bytes, first: bool) -> list[_Name]:
    reached: list[_Name] = []
    for name in frontier:
        if name.children is None:
            continue
        if level != _PLUS:
            child = name.children.get(level)
            if child is not None:
                reached.append(child)
            continue
        for key, child in name.children.items():
            if not (first and key.startswith(_DOLLAR)):
                reached.append(child)
    return reached


def _collect(names: list[_Name], hides: bool, found: list[Message]) -> None:
    """Collects all messages at and below `names`; `hides`: leaves out names that begin with `$`."""
    stack = list(names)
    while stack:
        name = stack.pop()
        if name.message is not None:
            found.append(name.message)
        if name.children is not None:
            for key, child in name.children.items():
                if not (hides and key.startswith(_DOLLAR)):
                    stack.append(child)
        hides = False


def _alive(found: list[Message], wall: float) -> list[Message]:
    return [m for m in found if m.expires_at == NEVER or m.expires_at > wall]


def _prune(path: list[_Name], levels: list[bytes]) -> None:
    for depth in range(len(levels), 0, -1):
        name = path[depth]
        if name.message is not None or name.children:
            return
        children = path[depth - 1].children
        if children is not None:
            del children[levels[depth - 1]]
