"""Topic filters as a trie of levels: what a topic matches, in time that other filters don't count in.

`+` stands for one level, `#` at the end for any number, none included. Filters that begin with a wildcard
don't match topics that begin with `$` [MQTT-4.7.2-1]. Levels are bytes: MQTT compares them as such.
The walk goes level by level with a list of nodes, never by recursion: a filter may have 65,535 levels.
"""

from __future__ import annotations

from typing import Final

from .subscriptions import Subscription

_PLUS: Final = b"+"
_HASH: Final = b"#"
_SLASH: Final = b"/"
_DOLLAR: Final = b"$"


class Node:
    """One level of filters. `here` ends at it, `below` ends with `#` after it; both by key.

    One of those that end at it is `first`, by `first_key`: most filters are one client's own, and a
    dictionary for each would be a good part of what a connection costs.
    """

    def __init__(self) -> None:
        self.children: dict[bytes, Node] | None = None
        self.plus: Node | None = None
        self.first: Subscription | None = None
        self.first_key = 0
        self.here: dict[int, Subscription] | None = None
        self.below: dict[int, Subscription] | None = None

    @property
    def empty(self) -> bool:
        return (
            not self.children
            and self.plus is None
            and self.first is None
            and not self.here
            and not self.below
        )

    def put(self, key: int, subscription: Subscription) -> Subscription | None:
        """Ends at it; answers what was there under this key."""
        here, first = self.here, self.first
        if here is not None and key in here:
            before = here[key]
            here[key] = subscription
            return before
        if first is None or self.first_key == key:
            self.first, self.first_key = subscription, key
            return first
        if here is None:
            self.here = here = {}
        here[key] = subscription
        return None

    def take(self, key: int) -> Subscription | None:
        """Removes and answers it."""
        first = self.first
        if first is not None and self.first_key == key:
            self.first = None
            return first
        return self.here.pop(key, None) if self.here is not None else None


class TopicTrie:
    """Subscriptions by filter; of one key and filter there is one."""

    def __init__(self) -> None:
        self._root = Node()
        self.count = 0

    def add(self, filter: bytes, key: int, subscription: Subscription) -> Subscription | None:
        """Adds; answers what was there under this filter and key."""
        levels = filter.split(_SLASH)
        below = levels[-1] == _HASH
        node = self._root
        for level in levels[:-1] if below else levels:
            node = _descend(node, level)
        before = _put_below(node, key, subscription) if below else node.put(key, subscription)
        self.count += before is None
        return before

    def remove(self, filter: bytes, key: int) -> Subscription | None:
        """Removes; answers what was there."""
        levels = filter.split(_SLASH)
        below = levels[-1] == _HASH
        if below:
            levels.pop()
        path = self._path(levels)
        if path is None:
            return None
        node = path[-1]
        if below:
            found = node.below.pop(key, None) if node.below is not None else None
        else:
            found = node.take(key)
        if found is None:
            return None
        self.count -= 1
        _prune(path, levels)
        return found

    def match(self, topic: bytes) -> list[Subscription]:
        """All subscriptions whose filters match."""
        found: list[Subscription] = []
        frontier = [self._root]
        hidden = topic.startswith(_DOLLAR)
        for level in topic.split(_SLASH):
            reached: list[Node] = []
            for node in frontier:
                if not hidden:
                    if node.below is not None:
                        found.extend(node.below.values())
                    if node.plus is not None:
                        reached.append(node.plus)
                if node.children is not None:
                    child = node.children.get(level)
                    if child is not None:
                        reached.append(child)
            if not reached:
                return found
            hidden = False
            frontier = reached
        for node in frontier:
            if node.first is not None:
                found.append(node.first)
            if node.here is not None:
                found.extend(node.here.values())
            if node.below is not None:
                found.extend(node.below.values())
        return found

    def _path(self, levels: list[bytes]) -> list[Node] | None:
        """The nodes from the root on, or None where the path is not there."""
        path = [self._root]
        node = self._root
        for level in levels:
            child = node.plus if level == _PLUS else _child(node, level)
            if child is None:
                return None
            path.append(child)
            node = child
        return path


def _child(node: Node, level: bytes) -> Node | None:
    return node.children.get(level) if node.children is not None else None


def _descend(node: Node, level: bytes) -> Node:
    if level == _PLUS:
        if node.plus is None:
            node.plus = Node()
        return node.plus
    if node.children is None:
        node.children = {}
    child = node.children.get(level)
    if child is None:
        child = Node()
        node.children[level] = child
    return child


def _put_below(node: Node, key: int, subscription: Subscription) -> Subscription | None:
    """Ends with `#` after it; answers what was there under this key."""
    below = node.below
    if below is None:
        below = node.below = {}
    before = below.get(key)
    below[key] = subscription
    return before


def _prune(path: list[Node], levels: list[bytes]) -> None:
    """Takes away the nodes at the end of `path` that hold nothing."""
    for depth in range(len(levels), 0, -1):
        if not path[depth].empty:
            return
        parent = path[depth - 1]
        if levels[depth - 1] == _PLUS:
            parent.plus = None
        elif parent.children is not None:
            del parent.children[levels[depth - 1]]
