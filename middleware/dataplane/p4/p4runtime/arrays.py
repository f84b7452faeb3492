"""CounterEntry, MeterEntry and RegisterEntry: cells by index; all of them without an index."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from finsy.proto import p4r

from treecast.middleware.dataplane.p4.runtime import CounterData, MeterConfig, MeterCounts

from .amounts import check_zero, colours_to, counter_from, counter_to, meter_from, meter_to
from .data import number_of, to_data
from .schema import Array, Data
from .store import Store, Undo, index_of, nothing, only_modify


class CounterStore(Store[p4r.CounterEntry]):
    """Indirect counters."""

    def write(self, kind: p4r.Update.Type.ValueType, message: p4r.CounterEntry, now: float) -> Undo:
        only_modify(kind, "a counter")
        counter = self.schema.counters.find(message.counter_id)
        place = index_of(message.index, counter.size, counter.name) if message.HasField("index") else None
        if not message.HasField("data"):
            return nothing
        data = counter_from(message.data, counter.name)
        old = (
            self.control.counter(counter.name).read_all()
            if place is None
            else [self.control.counter(counter.name).read(place)]
        )
        self.control.counter(counter.name).write(place, data)
        return partial(self._restore, counter, place or 0, old)

    def _restore(self, counter: Array, first: int, old: list[CounterData]) -> None:
        for place, data in enumerate(old, first):
            self.control.counter(counter.name).write(place, data)

    def read(self, wanted: p4r.CounterEntry, now: float) -> Iterator[p4r.Entity]:
        for counter in self.schema.counters.chosen(wanted.counter_id):
            cells: Iterator[tuple[int, CounterData]] = enumerate(
                self.control.counter(counter.name).read_all()
            )
            if wanted.counter_id and wanted.HasField("index"):
                place = index_of(wanted.index, counter.size, counter.name)
                cells = iter([(place, self.control.counter(counter.name).read(place))])
            for place, data in cells:
                message = p4r.CounterEntry(counter_id=counter.id, data=counter_to(data, counter.unit))
                message.index.index = place
                yield p4r.Entity(counter_entry=message)


class MeterStore(Store[p4r.MeterEntry]):
    """Indirect meters."""

    def write(self, kind: p4r.Update.Type.ValueType, message: p4r.MeterEntry, now: float) -> Undo:
        only_modify(kind, "a meter")
        meter = self.schema.meters.find(message.meter_id)
        place = index_of(message.index, meter.size, meter.name) if message.HasField("index") else None
        config = meter_from(message.config, meter.name) if message.HasField("config") else None
        if message.HasField("counter_data"):
            check_zero(message.counter_data, meter.name)
        places = range(meter.size) if place is None else range(place, place + 1)
        old = [self._cell(meter, one) for one in places]
        self.control.meter(meter.name).write(place, config, now)
        for one in places if message.HasField("counter_data") else ():
            self.control.meter(meter.name).set_counts(one, MeterCounts())
        return partial(self._restore, meter, places, old)

    def _cell(self, meter: Array, place: int) -> tuple[MeterConfig | None, MeterCounts]:
        return self.control.meter(meter.name).read(place), self.control.meter(meter.name).counts(place)

    def _restore(
        self, meter: Array, places: range, old: list[tuple[MeterConfig | None, MeterCounts]]
    ) -> None:
        for place, (config, counts) in zip(places, old, strict=True):
            self.control.meter(meter.name).write(place, config)
            self.control.meter(meter.name).set_counts(place, counts)

    def read(self, wanted: p4r.MeterEntry, now: float) -> Iterator[p4r.Entity]:
        for meter in self.schema.meters.chosen(wanted.meter_id):
            cells: Iterator[tuple[int, MeterConfig | None]] = enumerate(
                self.control.meter(meter.name).read_all()
            )
            if wanted.meter_id and wanted.HasField("index"):
                place = index_of(wanted.index, meter.size, meter.name)
                cells = iter([(place, self.control.meter(meter.name).read(place))])
            for place, config in cells:
                message = p4r.MeterEntry(meter_id=meter.id)
                message.index.index = place
                if config is not None:
                    message.config.CopyFrom(meter_to(config))
                if wanted.HasField("counter_data"):
                    counts = self.control.meter(meter.name).counts(place)
                    message.counter_data.CopyFrom(colours_to(counts))
                yield p4r.Entity(meter_entry=message)


class RegisterStore(Store[p4r.RegisterEntry]):
    """Registers."""

    def write(self, kind: p4r.Update.Type.ValueType, message: p4r.RegisterEntry, now: float) -> Undo:
        only_modify(kind, "a register")
        register = self.schema.registers.find(message.register_id)
        place = index_of(message.index, register.size, register.name) if message.HasField("index") else None
        types = self.schema.info.type_info
        value = number_of(register.type, types, message.data, register.name)
        old = (
            self.control.register(register.name).read_all()
            if place is None
            else [self.control.register(register.name).read(place)]
        )
        self.control.register(register.name).write(place, value)
        return partial(self._restore, register, place or 0, old)

    def _restore(self, register: Data, first: int, old: list[int]) -> None:
        for place, value in enumerate(old, first):
            self.control.register(register.name).write(place, value)

    def read(self, wanted: p4r.RegisterEntry, now: float) -> Iterator[p4r.Entity]:
        for register in self.schema.registers.chosen(wanted.register_id):
            cells: Iterator[tuple[int, int]] = enumerate(self.control.register(register.name).read_all())
            if wanted.register_id and wanted.HasField("index"):
                place = index_of(wanted.index, register.size, register.name)
                cells = iter([(place, self.control.register(register.name).read(place))])
            for place, value in cells:
                data = to_data(register.type, self.schema.info.type_info, iter([value]))
                message = p4r.RegisterEntry(register_id=register.id, data=data)
                message.index.index = place
                yield p4r.Entity(register_entry=message)
