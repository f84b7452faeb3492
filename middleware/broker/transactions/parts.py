"""Transactions in parts: several producers stage writes, and one decision commits all of them. Pure.

A transactional id `WHOLE//BATCH/NAME` is a part of WHOLE's batch with that number, for instance
`spark/6d2e//17/3-1042-9f`. A part is an ordinary transaction: clients begin, write and abort it by Kafka's
protocol, and it times out. Two rules are added:

- A part has the same home as WHOLE, so that one host knows all parts.
- WHOLE can commit a batch. The commit names the parts that count, in one row on disk. All other parts of
  that batch and of earlier batches are aborted. The row keeps the batch number: no part of this batch or of
  an earlier one can begin again, and a repeated commit has no effect.

A writer that does not know whether its batch was committed can therefore repeat it, and the batch is written
once. Calls that cannot be repeats are refused, so that no writer mistakes missing data for written data: a
batch before the last one, because only the last one can be in doubt, and the last one with other content.
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
DIGEST = "; digest "  # in a content: between what is counted and the digest of the rows
_MARK = "//"
_PART = re.compile(r"(.+?)//(\d{1,18})/(.+)", re.DOTALL)


class Part(Struct, frozen=True):
    """One part. `name` follows the batch number in the transactional id."""

    whole: str
    batch: int
    name: str


def part_of(transactional_id: str) -> Part | None:
    """Returns the part, or None if the id is a whole."""
    if _MARK not in transactional_id:
        return None
    found = _PART.fullmatch(transactional_id)
    return None if found is None else Part(found[1], int(found[2]), found[3])


def whole_of(transactional_id: str) -> str:
    """Returns the id that determines the home: the whole of a part, else the id itself."""
    part = part_of(transactional_id)
    return transactional_id if part is None else part.whole


def home_name(transactional_id: str) -> HomeName:
    """Returns the name of the home that decides about the id."""
    return HomeName(HomeKind.TRANSACTION, whole_of(transactional_id))


def check_begin(whole: Transaction | None, part: Part) -> None:
    """Raises INVALID_TRANSACTION_STATE if the part's batch is decided."""
    if whole is not None and part.batch <= whole.batch:
        raise TreecastError(
            Fault.INVALID_TRANSACTION_STATE,
            f"batch {part.batch} of {part.whole!r} is decided: the last committed batch is {whole.batch}",
        )


def check_repeat(whole: Transaction, batch: int, content: str) -> None:
    """Raises INVALID_TRANSACTION_STATE unless the commit of `batch` may repeat the last commit.

    `content` is empty if the writer names none, and ANYTHING if any content may match. Digests are compared
    if both contents have one: writers of earlier versions name none.
    """
    name = whole.transactional_id
    if batch < whole.batch:
        raise TreecastError(
            Fault.INVALID_TRANSACTION_STATE,
            f"batch {whole.batch} of {name!r} is committed, so batch {batch} is no repeat of the last one",
        )
    if content not in ("", ANYTHING) and not _agree(content, whole.content):
        raise TreecastError(
            Fault.INVALID_TRANSACTION_STATE,
            f"batch {batch} of {name!r} was committed with {whole.content or 'nothing'}, not with {content}",
        )


def compared(whole: Transaction, content: str) -> str:
    """Returns what of a repeated batch was compared, for the log."""
    if content in ("", ANYTHING):
        return "nothing"
    return "rows" if DIGEST in content and DIGEST in whole.content else "numbers of rows"


def _agree(one: str, other: str) -> bool:
    (counts, _, digest), (other_counts, _, other_digest) = one.partition(DIGEST), other.partition(DIGEST)
    return counts == other_counts and (digest == other_digest or not digest or not other_digest)


def check_fresh(whole: str, batch: int, parts: Collection[str], content: str) -> None:
    """Raises INVALID_TRANSACTION_STATE if an uncommitted batch has content but no parts: its writer was told
    that the batch is committed."""
    if content and not parts:
        raise TreecastError(
            Fault.INVALID_TRANSACTION_STATE,
            f"batch {batch} of {whole!r} with {content} should have been committed before, but was not",
        )


def check_names(whole: str, batch: int, parts: Mapping[str, ProducerIdentity]) -> None:
    """Raises INVALID_REQUEST if one of `parts` does not belong to the batch."""
    for transactional_id in parts:
        part = part_of(transactional_id)
        if part is None or part.whole != whole or part.batch != batch:
            raise TreecastError(
                Fault.INVALID_REQUEST, f"{transactional_id!r} is not a part of batch {batch} of {whole!r}"
            )


def check_open(transactional_id: str, part: Transaction | None, producer: ProducerIdentity) -> None:
    """Raises INVALID_TRANSACTION_STATE unless `producer` has the part open."""
    if part is None or part.producer != producer or part.state not in (State.ONGOING, State.EMPTY):
        raise TreecastError(
            Fault.INVALID_TRANSACTION_STATE,
            f"{transactional_id!r} is no longer open, so nothing is committed",
        )


def with_batch(
    whole: Transaction | None,
    transactional_id: str,
    batch: int,
    names: frozenset[str],
    content: str,
    now: float,
) -> Transaction:
    """Returns WHOLE after the commit of `batch` with the parts `names`."""
    before = whole or Transaction(transactional_id, -1, NO_PRODUCER_EPOCH, 0)
    return replace(before, batch=batch, winners=names, content=content, updated=now)


def fate(whole: Transaction | None, part: Part, transaction: Transaction, now: float) -> Transaction:
    """Returns an open part after the decision in WHOLE's row; the same object if the row does not decide it.

    Aborted parts are also fenced, because their producers may still be writing.
    """
    if transaction.state is not State.ONGOING or whole is None or part.batch > whole.batch:
        return transaction
    if part.batch == whole.batch and part.name in whole.winners:
        return ended(transaction, committed=True, now=now)
    return given_up(transaction, now)


def given_up(transaction: Transaction, now: float) -> Transaction:
    """Returns an open part after an abort that its producer did not request."""
    return fenced(transaction, Event.INIT, now, last_epoch=NO_PRODUCER_EPOCH)
