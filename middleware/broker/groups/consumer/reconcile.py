"""One member's next step towards its target: give up, wait, or take.

A partition goes to its next member only once the one before has said that it holds it no more. Of that the
group's promise is made: no partition is read by two members, whoever is slow.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from treecast.middleware.broker.values import Place, Places

from .members import NOTHING, Member
from .state import MOVES, Outcome


class Step(Struct, frozen=True):
    """What a member is to be after it."""

    outcome: Outcome
    epoch: int
    assigned: Places
    revoking: Places


def next_step(
    member: Member, target_epoch: int, owned: Places | None, holder: Callable[[Place], str | None]
) -> Step | None:
    """The step that `member` takes by a heartbeat; None where it stays as it is.

    `owned`: what it says it holds, None where it does not say. `holder`: who holds a partition.
    """
    given_up = owned is not None and member.revoking.isdisjoint(owned)
    if not MOVES[member.standing, member.epoch == target_epoch, given_up]:
        return None
    kept = member.assigned & member.target
    revoking = member.assigned - kept
    if revoking and (owned is None or not revoking.isdisjoint(owned)):
        return Step(Outcome.MUST_REVOKE, member.epoch, kept, revoking)
    wanted = member.target - kept
    free = frozenset(place for place in wanted if holder(place) in (None, member.member_id))
    outcome = Outcome.REACHED if free == wanted else Outcome.MUST_WAIT
    return Step(outcome, target_epoch, kept | free, NOTHING)
