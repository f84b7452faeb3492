"""Control of a switch in this process: the emulator's, and those with a controller beside them.

It uses the same messages as over the network, so that what works here works there.
"""

from __future__ import annotations

from collections.abc import Iterable

from finsy.proto import p4r

from treecast.middleware.dataplane.p4 import DONE, Code, Entities, Schema

from .difference import Change, SwitchDiffers, SwitchRefused, diff
from .messages import counted, counter_filters, filters_for, state_of, update_of
from .state import SwitchState


class LocalSwitch:
    """One program's entities on a switch, as in `Device` (`device.active.schema`, `.entities`)."""

    def __init__(self, schema: Schema, entities: Entities, name: str = "switch") -> None:
        self.name = name
        self._schema, self._entities = schema, entities

    def read(self, wanted: SwitchState | None = None, now: float = 0.0) -> SwitchState:
        """Returns the switch's state; of registers and meters only the cells in `wanted`."""
        filters = filters_for(self._schema, wanted or SwitchState())
        return state_of(self._schema, self._entities.read(filters, now))

    def write(self, changes: tuple[Change, ...], now: float = 0.0) -> int:
        """Makes all changes and returns their number, or makes none and raises SwitchRefused."""
        updates = [update_of(self._schema, change) for change in changes]
        outcomes = self._entities.write(updates, p4r.WriteRequest.DATAPLANE_ATOMIC, now)
        refused = next((one for one in outcomes if one is not DONE and one.code is not Code.ABORTED), None)
        if refused is not None:
            raise SwitchRefused(f"{self.name}: {refused.message}")
        return len(updates)

    def bring_to(self, desired: SwitchState, now: float = 0.0) -> int:
        """Brings the switch to `desired` and reads it back. Returns the number of writes."""
        count = self.write(diff(self.read(desired, now), desired), now)
        left = diff(self.read(desired, now), desired)
        if left:
            raise SwitchDiffers(self.name, left)
        return count

    def counter(self, name: str, cells: Iterable[int], now: float = 0.0) -> dict[int, tuple[int, int]]:
        """Returns packets and bytes in cells of a counter."""
        return counted(self._entities.read(counter_filters(self._schema, name, cells), now))
