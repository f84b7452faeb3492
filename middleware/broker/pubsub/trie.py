"""Topic filters as a trie of levels. The time of a match does not depend on filters that do not match.

One trie serves two spellings. In MQTT's, levels are joined by `/`, `+` stands for one level, and `#` at the
end for any number of levels, including none; filters that begin with a wildcard don't match topics that begin
with `$` [MQTT-4.7.2-1]. In AMQP's, levels are joined by `.`, `*` stands for one level, `#` anywhere for any
number, and the empty key has no levels (AMQP 0-9-1, section 3.1.3.3; RabbitMQ). Levels are compared as bytes.

The walk goes level by level with a list of nodes, never by recursion: a filter may have 65,535 levels.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

_HASH: Final = b"#"
_DOLLAR: Final = b"$"

V = TypeVar("V")


class Spelling:
    """The syntax of filters and topics.

    `hides`: topics that begin with `$` are hidden from leading wildcards. `anywhere`: `#` may stand within a
    filter, and the empty topic has no levels.
    """

    def __init__(self, separator: bytes, one: bytes, hides: bool, anywhere: bool) -> None:
        self.separator = separator
        self.one = one
        self.hides = hides
        self.anywhere = anywhere

    def levels(self, text: bytes) -> list[bytes]:
        if not text and self.anywhere:
            return []
        return text.split(self.separator)


MQTT: Final = Spelling(b"/", b"+", hides=True, anywhere=False)
AMQP: Final = Spelling(b".", b"*", hides=False, anywhere=True)


class Node(Generic[V]):
    """One level of filters. `here`: values of filters that end at it; `below`: values of filters that end
    with `#` after it; both by key.

    One value of a filter that ends here is in `first`, with `first_key`: most filters belong to one client,
    and a dictionary for each would be a large part of a connection's cost. `many`: the child for a `#` within
    a filter. `loops`: this node is such a child, and stays active at every further level.
    """

    def __init__(self, loops: bool = False) -> None:
        self.children: dict[bytes, Node[V]] | None = None
        self.plus: Node[V] | None = None
        self.many: Node[V] | None = None
        self.loops = loops
        self.first: V | None = None
        self.first_key = 0
        self.here: dict[int, V] | None = None
        self.below: dict[int, V] | None = None

    @property
    def empty(self) -> bool:
        return (
            not self.children
            and self.plus is None
            and self.many is None
            and self.first is None
            and not self.here
            and not self.below
        )

    def put(self, key: int, value: V) -> V | None:
        """Stores the value of a filter that ends here; returns the previous value of this key."""
        here, first = self.here, self.first
        if here is not None and key in here:
            before = here[key]
            here[key] = value
            return before
        if first is None or self.first_key == key:
            self.first, self.first_key = value, key
            return first
        if here is None:
            self.here = here = {}
        here[key] = value
        return None

    def take(self, key: int) -> V | None:
        """Removes and returns the value of this key."""
        first = self.first
        if first is not None and self.first_key == key:
            self.first = None
            return first
        return self.here.pop(key, None) if self.here is not None else None


class TopicTrie(Generic[V]):
    """Values by filter, such as subscriptions or bindings; one value for each filter and key."""

    def __init__(self, spelling: Spelling = MQTT) -> None:
        self._spelling = spelling
        self._root: Node[V] = Node()
        self._amid = 0  # the number of filters with `#` elsewhere than at the end
        self.count = 0

    def add(self, filter: bytes, key: int, value: V) -> V | None:
        """Adds a value; returns the previous one of this filter and key."""
        levels = self._spelling.levels(filter)
        below = bool(levels) and levels[-1] == _HASH
        if below:
            levels.pop()
        node = self._root
        for level in levels:
            node = self._descend(node, level)
        before = _put_below(node, key, value) if below else node.put(key, value)
        if before is None:
            self.count += 1
            self._amid += self._has_amid(levels)
        return before

    def remove(self, filter: bytes, key: int) -> V | None:
        """Removes and returns the value of this filter and key."""
        levels = self._spelling.levels(filter)
        below = bool(levels) and levels[-1] == _HASH
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
        self._amid -= self._has_amid(levels)
        self._prune(path, levels)
        return found

    def match(self, topic: bytes) -> list[V]:
        """Returns all values whose filters match."""
        levels = self._spelling.levels(topic)
        if self._amid:
            return self._match_amid(levels)
        found: list[V] = []
        frontier = [self._root]
        hidden = self._spelling.hides and topic.startswith(_DOLLAR)
        for level in levels:
            reached: list[Node[V]] = []
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
            _ends_here(node, found)
            if node.below is not None:
                found.extend(node.below.values())
        return found

    def _match_amid(self, levels: list[bytes]) -> list[V]:
        """As `match`, if some filter has `#` within it: a node may be reached on several paths, but counts
        once."""
        found: list[V] = []
        below: set[int] = set()  # nodes whose `below` was found
        frontier = [self._root]
        _close(frontier)
        for level in levels:
            reached: list[Node[V]] = []
            for node in frontier:
                if node.below is not None and id(node) not in below:
                    below.add(id(node))
                    found.extend(node.below.values())
                if node.loops:
                    reached.append(node)
                if node.plus is not None:
                    reached.append(node.plus)
                if node.children is not None:
                    child = node.children.get(level)
                    if child is not None:
                        reached.append(child)
            _close(reached)
            frontier = reached
        for node in frontier:
            _ends_here(node, found)
            if node.below is not None and id(node) not in below:
                found.extend(node.below.values())
        return found

    def _has_amid(self, levels: list[bytes]) -> bool:
        """Whether `levels`, without a `#` at the end, contain another `#` that is a wildcard."""
        return self._spelling.anywhere and _HASH in levels

    def _path(self, levels: list[bytes]) -> list[Node[V]] | None:
        """Returns the nodes of the path from the root, or None if the path does not exist."""
        path = [self._root]
        node = self._root
        for level in levels:
            child = self._child(node, level)
            if child is None:
                return None
            path.append(child)
            node = child
        return path

    def _child(self, node: Node[V], level: bytes) -> Node[V] | None:
        if level == self._spelling.one:
            return node.plus
        if level == _HASH and self._spelling.anywhere:
            return node.many
        return node.children.get(level) if node.children is not None else None

    def _descend(self, node: Node[V], level: bytes) -> Node[V]:
        child = self._child(node, level)
        if child is not None:
            return child
        if level == self._spelling.one:
            node.plus = child = Node()
        elif level == _HASH and self._spelling.anywhere:
            node.many = child = Node(loops=True)
        else:
            if node.children is None:
                node.children = {}
            node.children[level] = child = Node()
        return child

    def _prune(self, path: list[Node[V]], levels: list[bytes]) -> None:
        """Removes the empty nodes at the end of `path`."""
        for depth in range(len(levels), 0, -1):
            if not path[depth].empty:
                return
            parent, level = path[depth - 1], levels[depth - 1]
            if level == self._spelling.one:
                parent.plus = None
            elif level == _HASH and self._spelling.anywhere:
                parent.many = None
            elif parent.children is not None:
                del parent.children[level]


def _ends_here(node: Node[V], found: list[V]) -> None:
    """Adds the values of filters that end at `node`, the last level of the topic."""
    if node.first is not None:
        found.append(node.first)
    if node.here is not None:
        found.extend(node.here.values())


def _close(nodes: list[Node[V]]) -> None:
    """Adds the nodes reached by a `#` that stands for no level, and removes duplicates."""
    seen: set[int] = set()
    kept: list[Node[V]] = []
    for node in nodes:  # the loop appends to `nodes`
        if id(node) in seen:
            continue
        seen.add(id(node))
        kept.append(node)
        if node.many is not None:
            nodes.append(node.many)
    nodes[:] = kept


def _put_below(node: Node[V], key: int, value: V) -> V | None:
    """Stores the value of a filter that ends with `#` after `node`; returns the previous value of the key."""
    below = node.below
    if below is None:
        below = node.below = {}
    before = below.get(key)
    below[key] = value
    return before
