"""Exchanges and the bindings of each type: the destinations of a message with a given key.

A destination is a queue or an exchange, by name. The default exchange has no bindings; its keys are names of
queues (`virtual_host`). Two bindings are equal if their destinations, keys and arguments are.

Two types give each message to one of the queues that are bound, whatever their keys: `x-modulus-hash` by a
hash of its routing key, so that equal keys reach one queue while bindings stay, and `x-local-random` to one
of those that are here (`routing`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol
from zlib import crc32

from treecast.middleware.broker.contents import Contents, KeptFilters
from treecast.middleware.broker.filtering import content_filter
from treecast.middleware.broker.pubsub.trie import AMQP, TopicTrie
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.records import Record
from treecast.middleware.model.wishes import ContentFilter, Schemas

from . import headers
from .message import Run
from .policies import Policy
from .refusals import precondition, spelt


class ExchangeType(enum.Enum):
    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"
    MODULUS_HASH = "x-modulus-hash"
    LOCAL_RANDOM = "x-local-random"


_NO_KEY: Final = b""  # of exchanges that don't look at keys
_KEYS: Final = 1_000  # whose filtered bindings are remembered
BY_TURNS: Final = (ExchangeType.MODULUS_HASH, ExchangeType.LOCAL_RANDOM)  # they choose one of their queues


class Destination(NamedTuple):
    """The destination of a binding: an exchange if `is_exchange`, else a queue."""

    name: bytes
    is_exchange: bool


class Binding(NamedTuple):
    """One binding. `arguments` are in a canonical form, in which equal arguments compare equal."""

    destination: Destination
    key: bytes
    arguments: str


def binding_of(destination: Destination, key: bytes, arguments: Mapping[str, object]) -> Binding:
    return Binding(destination, key, repr(sorted(arguments.items())))


class HeaderReader(Protocol):
    """A reader of runs of one message, whose format is known only to a face."""

    def headers(self, run: Run) -> Mapping[str, object]:
        """Returns the headers of the message."""

    def record(self, run: Run) -> Record:
        """Returns the message as the record that a topic would keep."""

    def topic(self, key: bytes) -> str:
        """Returns a routing key as a topic in MQTT's spelling, or as it is if it is none."""


class _Filtered:
    """Bindings with a filter, and what decides which of them a message goes by."""

    def __init__(self, bindings: list[Binding], contents: Contents) -> None:
        self.bindings = bindings
        self.contents = contents


class Exchange:
    """One exchange. `alternate`: the exchange for unroutable messages, declared or by policy; None: none.

    `bindings`: all its bindings, each with its arguments as given.
    """

    def __init__(
        self,
        name: bytes,
        type: ExchangeType,
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, object] | None = None,
        alternate: bytes | None = None,
    ) -> None:
        self.name = name
        self.type = type
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = dict(arguments or {})
        self.declared_alternate = self.alternate = alternate
        self.policies: tuple[Policy | None, Policy | None] = (None, None)
        self.bindings: dict[Binding, Mapping[str, object]] = {}
        self.watcher: Callable[[Binding, bool], None] | None = None  # called with (binding, whether bound)
        self.onward = 0  # its bindings to exchanges
        self._by_key: dict[bytes, dict[Destination, int]] = {}
        self._all: dict[Destination, int] = {}
        self._trie: TopicTrie[Destination] = TopicTrie(AMQP)
        self._serials: dict[tuple[bytes, Destination], list[int]] = {}  # keys in the trie: number, bindings
        self._filters: dict[Binding, tuple[int, ContentFilter]] = {}  # (number, filter); in no table above
        self._filtered: TopicTrie[Binding] = TopicTrie(AMQP)  # those of a topic exchange
        self._kept = KeptFilters()
        self._filtered_by_key: dict[bytes, _Filtered] = {}  # until a binding with a filter changes
        self._next = 1
        self._turn = 0  # of the destinations of a local random exchange

    @property
    def definition(self) -> dict[str, object]:
        """The declaration, without the name."""
        return {
            "type": self.type.value,
            "durable": self.durable,
            "auto_delete": self.auto_delete,
            "internal": self.internal,
            "arguments": self.arguments,
        }

    @property
    def by_key(self) -> bool:
        """Whether routing depends on the key only."""
        by_key = self.type is not ExchangeType.HEADERS and self.type is not ExchangeType.LOCAL_RANDOM
        return by_key and not self._filters

    @property
    def by_content(self) -> bool:
        """Whether a binding has a filter: each message is then routed by itself."""
        return len(self._filters) > 0

    def bind(self, binding: Binding, arguments: Mapping[str, object]) -> bool:
        """Adds a binding. Returns whether it is new. Refuses invalid arguments with PRECONDITION_FAILED."""
        if self.type is ExchangeType.HEADERS:
            headers.check_arguments(arguments)
        content = self.content_of(arguments)
        if binding in self.bindings:
            return False
        self.bindings[binding] = arguments
        destination, key, _ = binding
        self.onward += destination.is_exchange
        if self.watcher is not None:
            self.watcher(binding, True)
        if content is not None:
            self._bind_filtered(binding, content)
        elif self.type is ExchangeType.DIRECT:
            _count(self._by_key.setdefault(key, {}), destination)
        elif self.type is ExchangeType.FANOUT or self.type in BY_TURNS:
            _count(self._all, destination)
        elif self.type is ExchangeType.TOPIC:
            self._bind_topic(key, destination)
        return True

    def content_of(self, arguments: Mapping[str, object]) -> ContentFilter | None:
        """Returns the filter of a binding, if it has one. Refuses one that cannot be read with
        PRECONDITION_FAILED."""
        if headers.FILTER not in arguments:
            return None
        text = arguments[headers.FILTER]
        if not isinstance(text, str):
            raise precondition(f"invalid arg '{headers.FILTER}' for binding: {spelt(text)} is no text")
        if self.type in BY_TURNS:
            raise precondition(f"exchanges of type '{self.type.value}' take no arg '{headers.FILTER}'")
        try:
            return content_filter(text)
        except TreecastError as error:
            raise precondition(f"invalid arg '{headers.FILTER}' for binding: {error.detail}") from error

    def _bind_filtered(self, binding: Binding, content: ContentFilter) -> None:
        self._filters[binding] = self._next, content
        self._kept.begin(self._pattern(binding))
        self._filtered_by_key.clear()
        if self.type is ExchangeType.TOPIC:
            self._filtered.add(binding.key, self._next, binding)
        self._next += 1

    def _bind_topic(self, key: bytes, destination: Destination) -> None:
        serial = self._serials.get((key, destination))
        if serial is not None:
            serial[1] += 1
            return
        self._serials[key, destination] = [self._next, 1]
        self._trie.add(key, self._next, destination)
        self._next += 1

    def unbind(self, binding: Binding) -> bool:
        """Removes a binding. Returns whether it existed."""
        if self.bindings.pop(binding, None) is None:
            return False
        destination, key, _ = binding
        self.onward -= destination.is_exchange
        if self.watcher is not None:
            self.watcher(binding, False)
        if binding in self._filters:
            number, _ = self._filters.pop(binding)
            self._kept.end(self._pattern(binding))
            self._filtered_by_key.clear()
            self._filtered.remove(key, number)
        elif self.type is ExchangeType.DIRECT:
            _discount(self._by_key[key], destination)
            if not self._by_key[key]:
                del self._by_key[key]
        elif self.type is ExchangeType.FANOUT or self.type in BY_TURNS:
            _discount(self._all, destination)
        elif self.type is ExchangeType.TOPIC:
            self._unbind_topic(key, destination)
        return True

    def _unbind_topic(self, key: bytes, destination: Destination) -> None:
        serial = self._serials[key, destination]
        serial[1] -= 1
        if serial[1] == 0:
            self._trie.remove(key, serial[0])
            del self._serials[key, destination]

    def match(self, key: bytes, run: Run, reader: HeaderReader | None, schemas: Schemas) -> list[Destination]:
        """Returns the destinations of a message with `key`, possibly with duplicates. The run has one message
        if they depend on more than the key."""
        found = self._tabled(key, run, reader)
        if not self._filters or reader is None:
            return found
        wanted = self._filtered_for(key)
        if not wanted.bindings:
            return found
        topic = reader.topic(key)
        passed = wanted.contents.passed(topic, reader.record(run), schemas)
        bindings = [wanted.bindings[place] for place in wanted.contents.places(passed)]
        if self.type is ExchangeType.HEADERS and bindings:
            given = reader.headers(run)
            bindings = [one for one in bindings if headers.matches(self.bindings[one], given)]
        had = set(found)
        return found + [one.destination for one in bindings if one.destination not in had]

    def _filtered_for(self, key: bytes) -> _Filtered:
        """Returns the bindings with a filter whose key fits."""
        place = key if self._judges_by_key else _NO_KEY
        known = self._filtered_by_key.get(place)
        if known is not None:
            return known
        if self.type is ExchangeType.TOPIC:
            found = self._filtered.match(key)
        elif self.type is ExchangeType.DIRECT:
            found = [binding for binding in self._filters if binding.key == key]
        else:
            found = list(self._filters)
        patterns = {self._pattern(binding) for binding in found}
        contents = self._kept.of(patterns, [[self._filters[binding][1]] for binding in found])
        if len(self._filtered_by_key) >= _KEYS:
            self._filtered_by_key.clear()
        made = self._filtered_by_key[place] = _Filtered(found, contents)
        return made

    @property
    def _judges_by_key(self) -> bool:
        return self.type is ExchangeType.TOPIC or self.type is ExchangeType.DIRECT

    def _pattern(self, binding: Binding) -> bytes:
        """Returns the pattern of a binding with a filter: bindings whose key says nothing have one."""
        return binding.key if self._judges_by_key else _NO_KEY

    def _tabled(self, key: bytes, run: Run, reader: HeaderReader | None) -> list[Destination]:
        """Returns the destinations of bindings without a filter."""
        if self.type is ExchangeType.DIRECT:
            return list(self._by_key.get(key, _NOBODY))
        if self.type is ExchangeType.FANOUT or self.type is ExchangeType.LOCAL_RANDOM:
            return list(self._all)
        if self.type is ExchangeType.MODULUS_HASH:
            return self._hashed(key)
        if self.type is ExchangeType.TOPIC:
            return self._trie.match(key)
        found = reader.headers(run) if reader is not None else {}
        return [
            binding.destination
            for binding, arguments in self.bindings.items()
            if binding not in self._filters and headers.matches(arguments, found)
        ]

    def _hashed(self, key: bytes) -> list[Destination]:
        """The queue for a key, equal on all hosts, whatever the order in which queues were bound."""
        if not self._all:
            return []
        return [sorted(self._all)[crc32(key) % len(self._all)]]

    def turn(self, found: list[Destination]) -> list[Destination]:
        """One of the destinations, each in its turn; none of none."""
        if not found:
            return []
        self._turn += 1
        return [found[self._turn % len(found)]]


_NOBODY: Final[dict[Destination, int]] = {}


def _count(counts: dict[Destination, int], destination: Destination) -> None:
    counts[destination] = counts.get(destination, 0) + 1


def _discount(counts: dict[Destination, int], destination: Destination) -> None:
    counts[destination] -= 1
    if counts[destination] == 0:
        del counts[destination]
