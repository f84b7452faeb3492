"""One member's next step towards its target: give partitions up, wait, or take them.

A partition goes to its next member only after its holder has confirmed giving it up. This gives the group's
guarantee: no partition is read by two members at a time, even if members are slow.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from treecast.middleware.broker.values import Place, Places

from .members import NOTHING, Member
from .state import MOVES, Outcome


class Step(Struct, frozen=True):
    """A member's values after a step."""

    outcome: Outcome
    epoch: int
    assigned: Places
    revoking: Places


def next_step(
    member: Member, target_epoch: int, owned: Places | None, holder: Callable[[Place], str | None]
) -> Step | None:
    """Returns the step that `member` takes at a heartbeat; None if it stays as it is.

    `owned`: the partitions that it says it holds; None if it does not say. `holder`: returns a partition's
    holder.
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
