"""A switch of this very process brought to a state: the emulator's, and those with a controller beside them.

The same messages as over the network, without the network: what works here works there.
"""

from __future__ import annotations

from finsy.proto import p4r

from treecast.middleware.dataplane.p4 import DONE, Code, Entities, Schema

from .difference import Change, SwitchDiffers, SwitchRefused, diff
from .messages import filters_for, state_of, update_of
from .state import SwitchState


class LocalSwitch:
    """One program's entities on a switch, as `Device` has them (`device.active.schema`, `.entities`)."""

    def __init__(self, schema: Schema, entities: Entities, name: str = "switch") -> None:
        self.name = name
        self._schema, self._entities = schema, entities

    def read(self, wanted: SwitchState | None = None, now: float = 0.0) -> SwitchState:
        """Returns what the switch holds; of registers and meters the cells that `wanted` has."""
        filters = filters_for(self._schema, wanted or SwitchState())
        return state_of(self._schema, self._entities.read(filters, now))

    def write(self, changes: tuple[Change, ...], now: float = 0.0) -> int:
        """All of the changes or, with SwitchRefused, none."""
        updates = [update_of(self._schema, change) for change in changes]
        outcomes = self._entities.write(updates, p4r.WriteRequest.DATAPLANE_ATOMIC, now)
        refused = next((one for one in outcomes if one is not DONE and one.code is not Code.ABORTED), None)
        if refused is not None:
            raise SwitchRefused(f"{self.name}: {refused.message}")
        return len(updates)

    def bring_to(self, desired: SwitchState, now: float = 0.0) -> int:
        """Makes the switch hold `desired`, and reads back that it does; answers how many writes it took."""
        count = self.write(diff(self.read(desired, now), desired), now)
        left = diff(self.read(desired, now), desired)
        if left:
            raise SwitchDiffers(self.name, left)
        return count
