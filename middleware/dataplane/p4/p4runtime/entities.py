"""All entities of one pipeline: writes in batches, reads by filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from finsy.proto import p4r
from msgspec import Struct

from treecast.middleware.dataplane.p4.runtime import Control, ControlError

from . import errors
from .arrays import CounterStore, MeterStore, RegisterStore
from .errors import Code, P4RuntimeError, invalid
from .profiles import GroupStore, MemberStore
from .replication import ReplicationStore
from .schema import Schema
from .sets import DigestStore, ValueSetStore
from .store import DELETE, INSERT, MODIFY, Store, Undo
from .tables import DirectCounterStore, DirectMeterStore, TableStore

_STORES: dict[str, type[Store[Any]]] = {
    "table_entry": TableStore,
    "direct_counter_entry": DirectCounterStore,
    "direct_meter_entry": DirectMeterStore,
    "action_profile_member": MemberStore,
    "action_profile_group": GroupStore,
    "counter_entry": CounterStore,
    "meter_entry": MeterStore,
    "register_entry": RegisterStore,
    "packet_replication_engine_entry": ReplicationStore,
    "value_set_entry": ValueSetStore,
    "digest_entry": DigestStore,
}


class Outcome(Struct, frozen=True):
    """The result of one update of a batch."""

    code: Code
    message: str = ""


DONE = Outcome(Code.OK)


class Entities:
    """The entities of a switch that runs one program."""

    def __init__(self, schema: Schema, control: Control) -> None:
        self._stores = {name: store(schema, control) for name, store in _STORES.items()}

    def write(
        self, updates: Sequence[p4r.Update], atomicity: p4r.WriteRequest.Atomicity.ValueType, now: float
    ) -> list[Outcome]:
        """Executes updates; returns one outcome for each. With another atomicity than CONTINUE_ON_ERROR, all
        or none are done.

        Nothing else runs meanwhile, so that packets see no intermediate state: a rollback is atomic for the
        data plane too.
        """
        outcomes: list[Outcome] = []
        undos: list[Undo] = []
        for update in updates:
            try:
                undos.append(self._update(update, now))
                outcomes.append(DONE)
            except P4RuntimeError as error:
                outcomes.append(Outcome(error.code, str(error)))
                if atomicity != p4r.WriteRequest.CONTINUE_ON_ERROR:
                    return _rolled_back(outcomes, undos, len(updates))
        return outcomes

    def _update(self, update: p4r.Update, now: float) -> Undo:
        if update.type not in (INSERT, MODIFY, DELETE):
            raise invalid("an update inserts, modifies or deletes")
        store, message = self._store(update.entity)
        try:
            return store.write(update.type, message, now)
        except ControlError as error:
            raise errors.of(error) from error

    def _store(self, entity: p4r.Entity) -> tuple[Store[Any], Any]:
        which = entity.WhichOneof("entity")
        if which is None:
            raise invalid("an entity says nothing")
        store = self._stores.get(which)
        if store is None:
            raise P4RuntimeError(Code.UNIMPLEMENTED, f"there are no entities of kind {which} in v1model")
        return store, getattr(entity, which)

    def read(self, wanted: Iterable[p4r.Entity], now: float) -> Iterator[p4r.Entity]:
        """Yields the entities of all filters, filter after filter. Raises P4RuntimeError at the first invalid
        filter.
        """
        for filter_ in wanted:
            store, message = self._store(filter_)
            try:
                yield from store.read(message, now)
            except ControlError as error:
                raise errors.of(error) from error


def _rolled_back(outcomes: list[Outcome], undos: list[Undo], count: int) -> list[Outcome]:
    """Undoes the executed updates, last first."""
    for undo in reversed(undos):
        undo()
    aborted = Outcome(Code.ABORTED, "another update of the batch was refused")
    before = [aborted if outcome is DONE else outcome for outcome in outcomes]
    return before + [aborted] * (count - len(outcomes))
