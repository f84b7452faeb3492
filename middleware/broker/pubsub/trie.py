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
    """One level of filters. `here` ends at it, `below` ends with `#` after it; both by key."""

    def __init__(self) -> None:
        self.children: dict[bytes, Node] | None = None
        self.plus: Node | None = None
        self.here: dict[int, Subscription] | None = None
        self.below: dict[int, Subscription] | None = None

    @property
    def empty(self) -> bool:
        return not self.children and self.plus is None and not self.here and not self.below


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
        entries = _entries(node, below)
        before = entries.get(key)
        entries[key] = subscription
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
        entries = path[-1].below if below else path[-1].here
        if entries is None or key not in entries:
            return None
        found = entries.pop(key)
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


def _entries(node: Node, below: bool) -> dict[int, Subscription]:
    if below:
        if node.below is None:
            node.below = {}
        return node.below
    if node.here is None:
        node.here = {}
    return node.here


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
