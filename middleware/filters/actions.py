"""Rules: a filter and what becomes of the packets that match it. Camus, sections II, IV.D and V.A."""

from __future__ import annotations

from msgspec import Struct

from .tree import Field, Filter, Scalar


class Forward(Struct, frozen=True, tag=True):
    """`fwd(1, 2)`: a copy for each of `ports`."""

    ports: tuple[int, ...]


class Drop(Struct, frozen=True, tag=True):
    """`drop`: no copy. The packet counts as matched, so the default actions leave it alone."""


class Custom(Struct, frozen=True, tag=True):
    """`answerDNS(10.0.0.105)`, or another action of the header description, with its arguments in order."""

    name: str
    arguments: tuple[Scalar, ...]


class Update(Struct, frozen=True, tag=True):
    """`variable <- function(argument)`: the state variable takes the packet into account."""

    variable: str
    function: str
    arguments: tuple[Field, ...]


Action = Forward | Drop | Custom | Update


class Rule(Struct, frozen=True):
    """`filter : action, ...`. `position` is the character index of its beginning in the rule file."""

    filter: Filter
    actions: tuple[Action, ...]
    position: int = 0


class Rules(Struct, frozen=True):
    """The rules of a file. `default` is done to packets that no rule matches. `text` is for messages."""

    rules: tuple[Rule, ...]
    default: tuple[Action, ...] = ()
    text: str = ""
