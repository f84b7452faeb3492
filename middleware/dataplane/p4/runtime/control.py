"""The control interface of a switch: everything that a controller writes and reads, by the control plane's
names.

    control.table("ingress.routes").insert(entry, now)
    control.register("ingress.seen").read(index)
    control.replication.insert_group(group)

Every method either completes or raises `ControlError` and changes nothing. Values that are read may be
written again unchanged.
"""

from __future__ import annotations

from .arrays import CounterArray, MeterArray, RegisterArray
from .digests import DigestQueue
from .errors import ControlError, Problem
from .machine import Machine
from .profiles import Profile
from .tables import TableState
from .value_sets import ValueSetState
from .values import DigestConfig, DigestList, IdleEntry


class Control:
    """`Switch.control`. Methods that take a name raise UNKNOWN if the program has nothing of that kind and
    name."""

    def __init__(self, machine: Machine) -> None:
        self.replication = machine.replication
        self._machine = machine
        self._tables = {table.shape.name: table for table in machine.tables}
        instances = machine.program.externs
        self._externs = dict(zip((one.name for one in instances), machine.externs, strict=True))
        self._value_sets = {one.name: one for one in machine.value_sets}

    def table(self, name: str) -> TableState:
        found = self._tables.get(name)
        if found is None:
            raise _unknown("table", name)
        return found

    def counter(self, name: str) -> CounterArray:
        found = self._externs.get(name)
        if not isinstance(found, CounterArray):
            raise _unknown("counter", name)
        return found

    def meter(self, name: str) -> MeterArray:
        found = self._externs.get(name)
        if not isinstance(found, MeterArray):
            raise _unknown("meter", name)
        return found

    def register(self, name: str) -> RegisterArray:
        found = self._externs.get(name)
        if not isinstance(found, RegisterArray):
            raise _unknown("register", name)
        return found

    def profile(self, name: str) -> Profile:
        found = self._externs.get(name)
        if not isinstance(found, Profile):
            raise _unknown("action profile", name)
        return found

    def value_set(self, name: str) -> ValueSetState:
        found = self._value_sets.get(name)
        if found is None:
            raise _unknown("value set", name)
        return found

    def digest(self, name: str) -> DigestQueue:
        found = self._machine.digests.get(name)
        if found is None:
            raise _unknown("digest", name)
        return found

    # --- what the switch tells by itself

    def digest_configs(self) -> dict[str, DigestConfig]:
        queues = self._machine.digests.items()
        return {name: queue.config for name, queue in queues if queue.config is not None}

    def take_digests(self, now: float) -> list[DigestList]:
        """Returns the lists that are due; ask after every batch of packets, and at `next_digest_at`."""
        return [one for queue in self._machine.digests.values() for one in queue.take(now)]

    def next_digest_at(self) -> float | None:
        """Returns when a list is due without another packet; None: nothing waits."""
        times = [queue.due_at() for queue in self._machine.digests.values()]
        return min((at for at in times if at is not None), default=None)

    def idle_entries(self, now: float) -> list[IdleEntry]:
        """Returns entries whose idle timeout has passed since their last hit or last report here."""
        return [one for table in self._machine.tables if table.timed for one in table.idle(now)]


def _unknown(kind: str, name: str) -> ControlError:
    return ControlError(Problem.UNKNOWN, f"the program has no {kind} {name}")
