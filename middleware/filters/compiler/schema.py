"""A header description as values: what the static step of Camus knows (section V.A, Fig. 4).

| annotation | meaning |
| --- | --- |
| `query_field(h.f)` | filters may use the field; tables match it by ranges |
| `query_field_exact(h.f)`, `..._lpm(h.f)`, `..._ternary(h.f)` | tables match it so |
| `query_field_low(h.f, bits)` | values are first mapped to a domain of so many bits |
| `query_counter(name, window, cells)` | `cells` cells of state, with tumbling windows of `window` µs |
| `query_next(h.f, value, h2)` | the parser goes on with h2 if the field has this value |
| `query_next(h, h2)` | it goes on with h2 after every h |
| `query_messages(h.count, h2.length, most)` | behind h come `count` messages, each of which begins with h2 |
| `query_port(h.f)` | h.f is the port by which the packet came; h is no header |
| `query_pad(h.f, byte)` | strings shorter than the field are filled with this byte; 0x20 unless said |
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ..tree import Field

KINDS: Final = ("range", "exact", "lpm", "ternary", "low")
STATE_BITS: Final = 64  # of a state variable's value
SPACE: Final = 0x20
PORT_BITS: Final = 9  # of v1model's ports
ARRIVAL: Final = "standard.ingress_port"


class SchemaError(ValueError):
    """The description, or a rule's use of it, is wrong. `name` is what the message is about."""

    def __init__(self, reason: str, name: str = "") -> None:
        self.reason = reason
        self.name = name
        super().__init__(reason)


class HeaderField(Struct, frozen=True):
    """A field as it lies in its header; `width` in bits."""

    name: str
    width: int


class Header(Struct, frozen=True):
    """A header; its instance has the name of its type."""

    name: str
    fields: tuple[HeaderField, ...]


class Next(Struct, frozen=True):
    """After `header` comes `next`, always if `field` is empty, else if it has this value."""

    header: str
    field: str
    value: int
    next: str


class QueryField(Struct, frozen=True):
    """A field that filters may use. `bits`: of the low-resolution domain. `pad`: fills short strings.
    `source`: the P4 expression that it is, if it is of no header; such a field is never absent."""

    header: str
    name: str
    width: int
    kind: str = "range"
    bits: int = 0
    pad: int = SPACE
    source: str = ""

    @property
    def value(self) -> str:
        """The field in the program."""
        return self.source or f"hdr.{self.header}.{self.name}"

    @property
    def there(self) -> str:
        """Whether the packet has it, in the program."""
        return "true" if self.source else f"hdr.{self.header}.isValid()"

    @property
    def path(self) -> tuple[str, str]:
        return (self.header, self.name)

    @property
    def key(self) -> str:
        return f"{self.header}_{self.name}"


class Counter(Struct, frozen=True):
    """A block of state: `cells` variables, of which one packet uses at most one. `window` in µs."""

    name: str
    window: int
    cells: int


class CustomAction(Struct, frozen=True):
    """An action of the description that rules may name; parameters by name and width, in order."""

    name: str
    parameters: tuple[HeaderField, ...]
    bound: tuple[str, ...] = ()


class Messages(Struct, frozen=True):
    """Packets with several messages, as many as `header.count` says, behind this header.

    Each begins with the header `message`, whose first field `length`, of `width` bits, counts the bytes
    behind it. The first `most` of a packet are told apart. `pruned`: the description has an action of this
    name, which is called for a copy that has lost messages, with the bytes of these.
    """

    header: str
    count: str
    message: str
    length: str
    width: int
    most: int
    pruned: bool = False


class Schema(Struct, frozen=True):
    """A whole description. The first header begins every packet. `source` is its P4 text."""

    headers: tuple[Header, ...]
    nexts: tuple[Next, ...]
    fields: tuple[QueryField, ...]
    counters: tuple[Counter, ...] = ()
    actions: tuple[CustomAction, ...] = ()
    source: str = ""
    messages: Messages | None = None

    def field(self, wanted: Field) -> int:
        """Returns the place in `fields` of the field that a filter names whole or by its last part.

        Raises SchemaError if there is none, or several.
        """
        path = wanted.path
        found = [place for place, field in enumerate(self.fields) if field.path[-len(path) :] == path]
        written = ".".join(path)
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(".".join(self.fields[place].path) for place in found)
            raise SchemaError(f"{written} may be {names}", path[-1])
        known = ", ".join(".".join(field.path) for field in self.fields) or "none"
        raise SchemaError(f"there is no query field {written}; the header description has {known}", path[-1])

    def counter(self, name: str) -> int | None:
        """Returns the place in `counters` of the block with this name."""
        for place, counter in enumerate(self.counters):
            if counter.name == name:
                return place
        return None

    def action(self, name: str) -> CustomAction:
        for action in self.actions:
            if action.name == name:
                return action
        known = ", ".join(["fwd", "drop", *(action.name for action in self.actions)])
        raise SchemaError(f"there is no action {name}; there are {known}", name)
