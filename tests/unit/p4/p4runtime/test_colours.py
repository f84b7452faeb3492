"""Counters of a meter's colours: MeterCounterData of direct and indirect meters."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from finsy.proto import p4r
from tests.unit.p4.p4runtime.planes import Plane, Refused, Served, insert, modify
from tests.unit.p4.p4runtime.programs import KITCHEN, ethernet

from treecast.middleware.dataplane.p4 import bundle
from treecast.middleware.dataplane.p4.runtime import (
    ActionCall,
    CounterData,
    Entry,
    MeterConfig,
    MeterCounts,
    Switch,
)

FRAME = ethernet(0x020000000002, payload=bytes(6))  # 20 bytes
METERED = KITCHEN.replace(
    "ternary_table.apply();", "limits.execute_meter((bit<32>) 2, meta.colour); ternary_table.apply();"
)


def counted(found: p4r.MeterCounterData) -> list[tuple[int, int]]:
    return [(one.packet_count, one.byte_count) for one in (found.green, found.yellow, found.red)]


def direct(plane: Plane, **config: int) -> p4r.TableEntry:
    entry = plane.entry("ternary_table", action="metered", priority=1)
    if config:
        entry.meter_config.CopyFrom(p4r.MeterConfig(**config))
    return entry


async def read(plane: Plane, **entity: Any) -> p4r.Entity:
    (found,) = await plane.read(p4r.Entity(**entity))
    return found


@pytest.mark.parametrize("interpret", [False, True])
def test_both_engines_count(interpret: bool) -> None:
    switch = Switch(bundle.load(METERED.encode()), ports=range(4), interpret=interpret)
    switch.control.meter("MyIngress.limits").write(2, MeterConfig(0, 1, 0, 2))
    switch.control.table("MyIngress.ternary_table").insert(Entry({}, ActionCall("MyIngress.metered"), 1))
    for _ in range(4):
        switch.receive(0, FRAME, 1.0)
    one, two = CounterData(1, 20), CounterData(2, 40)
    assert switch.control.meter("MyIngress.limits").counts(2) == MeterCounts(one, one, two)
    direct = switch.control.table("MyIngress.ternary_table").meter_counts({}, 1)
    assert direct == MeterCounts(green=CounterData(4, 80))


async def test_a_direct_meter_counts_what_it_marks(plane: Plane, switch: Served) -> None:
    await plane.write(insert(table_entry=direct(plane, cir=1, cburst=1, pir=1, pburst=3)))
    for _ in range(5):
        switch.receive(0, FRAME)
    wanted = p4r.TableEntry(table_id=direct(plane).table_id)
    wanted.meter_counter_data.SetInParent()
    found = (await read(plane, table_entry=wanted)).table_entry
    assert counted(found.meter_counter_data) == [(1, 20), (2, 40), (2, 40)]
    asked = p4r.DirectMeterEntry(table_entry=p4r.TableEntry(table_id=wanted.table_id))
    assert not (await read(plane, direct_meter_entry=asked)).direct_meter_entry.HasField("counter_data")
    asked.counter_data.SetInParent()
    again = (await read(plane, direct_meter_entry=asked)).direct_meter_entry
    assert again.counter_data == found.meter_counter_data


async def test_a_meter_without_a_config_counts_green(plane: Plane, switch: Served) -> None:
    await plane.set_pipeline(METERED.encode())
    for _ in range(3):
        switch.receive(0, FRAME)
    limits = plane.schema.meters.names["MyIngress.limits"].id
    wanted = p4r.MeterEntry(meter_id=limits, index=p4r.Index(index=2))
    wanted.counter_data.SetInParent()
    found = (await read(plane, meter_entry=wanted)).meter_entry
    assert counted(found.counter_data) == [(3, 60), (0, 0), (0, 0)]
    assert not found.HasField("config")
    await plane.write(modify(meter_entry=wanted))  # all 0: this resets them
    found = (await read(plane, meter_entry=wanted)).meter_entry
    assert counted(found.counter_data) == [(0, 0)] * 3


async def test_they_stay_where_a_modify_does_not_name_them_and_are_reset_where_it_does(
    plane: Plane, switch: Served
) -> None:
    await plane.write(insert(table_entry=direct(plane)))
    switch.receive(0, FRAME)
    wanted = p4r.TableEntry(table_id=direct(plane).table_id)
    wanted.meter_counter_data.SetInParent()

    async def green() -> int:
        found = (await read(plane, table_entry=wanted)).table_entry
        return found.meter_counter_data.green.packet_count

    await plane.write(modify(table_entry=direct(plane, cir=5, cburst=5, pir=5, pburst=5)))
    assert await green() == 1
    entry = direct(plane)
    entry.meter_counter_data.SetInParent()
    await plane.write(modify(table_entry=entry))
    assert await green() == 0


@pytest.mark.parametrize("kind", ["table_entry", "direct_meter_entry", "meter_entry"])
async def test_only_zero_may_be_written_and_a_refused_batch_changes_nothing(
    plane: Plane, switch: Served, kind: str
) -> None:
    await plane.set_pipeline(METERED.encode())
    await plane.write(insert(table_entry=direct(plane)))
    switch.receive(0, FRAME)
    limits = plane.schema.meters.names["MyIngress.limits"].id
    wrong: dict[str, Any] = {
        "table_entry": direct(plane),
        "direct_meter_entry": p4r.DirectMeterEntry(table_entry=direct(plane)),
        "meter_entry": p4r.MeterEntry(meter_id=limits, index=p4r.Index(index=2)),
    }
    field = "meter_counter_data" if kind == "table_entry" else "counter_data"
    getattr(wrong[kind], field).red.packet_count = 1
    reset = direct(plane)
    reset.meter_counter_data.SetInParent()
    cells = p4r.MeterEntry(meter_id=limits)
    cells.counter_data.SetInParent()
    with pytest.raises(Refused) as caught:
        await plane.write(
            modify(table_entry=reset),
            modify(meter_entry=cells),
            modify(**{kind: wrong[kind]}),
            atomicity=p4r.WriteRequest.ROLLBACK_ON_ERROR,
        )
    assert caught.value.codes == [10, 10, grpc.StatusCode.INVALID_ARGUMENT.value[0]]
    wanted = p4r.TableEntry(table_id=reset.table_id)
    wanted.meter_counter_data.SetInParent()
    found = (await read(plane, table_entry=wanted)).table_entry
    assert found.meter_counter_data.green.packet_count == 1
    cells.index.index = 2
    assert counted((await read(plane, meter_entry=cells)).meter_entry.counter_data)[0] == (1, 20)
