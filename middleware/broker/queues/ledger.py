"""The recorders of the definitions of one virtual host, and the rules for the names of new ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .recorder import Recorder
from .refusals import LONGEST_NAME, Reason, Refusal, text, too_long
from .routing import DEFAULT

RESERVED: Final = b"amq."


class Ledger:
    """The recorders of one virtual host: `recorder` stores what is durable, `sharing` tells other hosts of
    all. `restoring`: what is declared existed before the restart, whatever its name."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.sharing = Recorder()
        self.restoring = False

    def declared(self, kind: str, name: bytes, definition: Mapping[str, object], *, durable: bool) -> None:
        if durable:
            self.recorder.declared(kind, name, definition)
        self.sharing.declared(kind, name, definition)

    def deleted(self, kind: str, name: bytes, *, durable: bool) -> None:
        if durable:
            self.recorder.deleted(kind, name)
        self.sharing.deleted(kind, name)

    def not_too_long(self, what: str, name: bytes) -> None:
        """Refuses what AMQP cannot carry: the management calls could give it, and an older store has it."""
        if len(name) > LONGEST_NAME and not self.restoring:
            raise too_long(what, name)

    def not_reserved(self, kind: str, name: bytes) -> None:
        if name.startswith(RESERVED) and not self.restoring:
            raise Refusal(
                Reason.ACCESS_REFUSED, f"{kind} name '{text(name)}' contains reserved prefix 'amq.*'"
            )


def not_default(name: bytes) -> None:
    if name == DEFAULT:
        raise Refusal(Reason.ACCESS_REFUSED, "operation not permitted on the default exchange")
