"""Session tests as scripts: a line says what arrives, and what must leave.

client << Ping(PINGREQ) >> Ping(PINGRESP)
pub << Publish(b"t", b"x", 1, packet_id=5) >> Ack(PUBACK, 5)
sub >> Like(Publish, payload=b"x", qos=1)
sub << Disconnect() >> []
"""

from __future__ import annotations

from typing import Any, Self


class Like:
    """Equals what has this type and these fields, whatever else it has."""

    # It equals things of different hashes, so it has none; mypy knows no other spelling of that.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, kind: type, **fields: object) -> None:
        self.kind, self.fields = kind, fields

    def __eq__(self, other: object) -> bool:
        fields = self.fields.items()
        return isinstance(other, self.kind) and all(getattr(other, name) == value for name, value in fields)

    def __repr__(self) -> str:
        return f"Like({self.kind.__name__}, {self.fields})"


class Script:
    """An edge of one session. The clients of the faces' tests implement `give` and `take`."""

    def give(self, *given: Any) -> None:
        """Lets this arrive, in one chunk."""
        raise NotImplementedError

    def take(self) -> list[Any]:
        """Returns what has left since the last call."""
        raise NotImplementedError

    def __lshift__(self, given: Any) -> Self:
        self.give(*given) if isinstance(given, list) else self.give(given)
        return self

    def __rshift__(self, wanted: Any) -> list[Any]:
        """Checks that this has left, all of it and in this order. A type stands for any of it. Returns it."""
        listed = wanted if isinstance(wanted, list) else [wanted]
        listed = [Like(one) if isinstance(one, type) else one for one in listed]
        found = self.take()
        assert listed == found, f"wanted {listed}, and what left is {found}"
        return found
