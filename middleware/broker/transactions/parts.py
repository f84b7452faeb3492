"""Transactions in parts: what several producers stage apart and one decision commits at once. Pure.

A transactional id `WHOLE//BATCH/NAME` is a part of WHOLE's batch with that number, for instance
`spark/6d2e//17/3-1042-9f`. A part is a transaction like any other: it is begun, written and aborted in
Kafka's own protocol, and times out. Two things are more:

- it has the same home as WHOLE, so that one host knows all parts;
- WHOLE can commit a batch: it names the parts that count, and one row on disk says so of all of them.
  Every other part of that batch and of earlier ones is aborted. The number of the last batch stays: parts of
  it or of earlier ones are not begun any more, and committing it again does nothing.

So whoever repeats a batch, not knowing whether it had been committed, writes it once. What is no repeat is
refused, so that nobody takes for written what is not: a batch before the last one, as only that one can be
in doubt; and the last one, where its writer says that it holds something else than before.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from msgspec import Struct
from msgspec.structs import replace

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.broker.homes import HomeName
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import NO_PRODUCER_EPOCH, ProducerIdentity

from .state import Event, State, Transaction, ended, fenced

ANYTHING = "*"
_MARK = "//"
_PART = re.compile(r"(.+?)//(\d{1,18})/(.+)", re.DOTALL)


class Part(Struct, frozen=True):
    """One part; `name` is what follows the number."""

    whole: str
    batch: int
    name: str


def part_of(transactional_id: str) -> Part | None:
    """None for an id that is a whole of its own."""
    if _MARK not in transactional_id:
        return None
    found = _PART.fullmatch(transactional_id)
    return None if found is None else Part(found[1], int(found[2]), found[3])


def whole_of(transactional_id: str) -> str:
    """The id whose home is this one's: itself where it is no part."""
    part = part_of(transactional_id)
    return transactional_id if part is None else part.whole


def home_name(transactional_id: str) -> HomeName:
    """Whose home decides about it."""
    return HomeName(HomeKind.TRANSACTION, whole_of(transactional_id))


def check_begin(whole: Transaction | None, part: Part) -> None:
    """INVALID_TRANSACTION_STATE where the part's batch is decided."""
    if whole is not None and part.batch <= whole.batch:
        raise TreecastError(
            Fault.INVALID_TRANSACTION_STATE,
            f"batch {part.batch} of {part.whole!r} is decided: the last that was committed is {whole.batch}",
        )


def check_repeat(whole: Transaction, batch: int, content: str) -> None:
    """INVALID_TRANSACTION_STATE unless committing `batch` may be a repeat of what was committed last.

    `content`: empty where its writer does not say, ANYTHING where that does not matter.
    """
    name = whole.transactional_id
    if batch < whole.batch:
        raise TreecastError(
            Fault.INVALID_TRANSACTION_STATE,
            f"batch {whole.batch} of {name!r} is committed, so batch {batch} is no repeat of the last one",
        )
    if content not in ("", ANYTHING, whole.content):
        raise TreecastError(
            Fault.INVALID_TRANSACTION_STATE,
            f"batch {batch} of {name!r} was committed with {whole.content or 'nothing'}, not with {content}",
        )


def check_fresh(whole: str, batch: int, parts: Collection[str], content: str) -> None:
    """INVALID_TRANSACTION_STATE where a batch that is not committed holds something, but not in parts: its
    writer was told that it is committed."""
    if content and not parts:
        raise TreecastError(
            Fault.INVALID_TRANSACTION_STATE,
            f"batch {batch} of {whole!r} with {content} was to be committed before, and is not",
        )


def check_names(whole: str, batch: int, parts: Mapping[str, ProducerIdentity]) -> None:
    """INVALID_REQUEST where one of `parts` is not of that batch."""
    for transactional_id in parts:
        part = part_of(transactional_id)
        if part is None or part.whole != whole or part.batch != batch:
            raise TreecastError(
                Fault.INVALID_REQUEST, f"{transactional_id!r} is no part of batch {batch} of {whole!r}"
            )


def check_open(transactional_id: str, part: Transaction | None, producer: ProducerIdentity) -> None:
    """INVALID_TRANSACTION_STATE unless `producer` has the part open: it timed out, or was aborted."""
    if part is None or part.producer != producer or part.state not in (State.ONGOING, State.EMPTY):
        raise TreecastError(
            Fault.INVALID_TRANSACTION_STATE,
            f"{transactional_id!r} is not open any more, so nothing is committed",
        )


def with_batch(
    whole: Transaction | None,
    transactional_id: str,
    batch: int,
    names: frozenset[str],
    content: str,
    now: float,
) -> Transaction:
    """WHOLE after it has committed `batch`, of which the parts `names` count."""
    before = whole or Transaction(transactional_id, -1, NO_PRODUCER_EPOCH, 0)
    return replace(before, batch=batch, winners=names, content=content, updated=now)


def fate(whole: Transaction | None, part: Part, transaction: Transaction, now: float) -> Transaction:
    """What WHOLE's row makes of an open part; the same object where it says nothing of it.

    Those that don't count are fenced as well: their producers may still be writing.
    """
    if transaction.state is not State.ONGOING or whole is None or part.batch > whole.batch:
        return transaction
    if part.batch == whole.batch and part.name in whole.winners:
        return ended(transaction, committed=True, now=now)
    return given_up(transaction, now)


def given_up(transaction: Transaction, now: float) -> Transaction:
    """An open part that is aborted by others than its producer."""
    return fenced(transaction, Event.INIT, now, last_epoch=NO_PRODUCER_EPOCH)
