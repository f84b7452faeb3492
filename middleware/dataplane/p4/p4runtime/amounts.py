"""Counter data and meter configurations, messages to values and back."""

from __future__ import annotations

from finsy.proto import p4r

from treecast.middleware.dataplane.p4.runtime import CounterData, MeterConfig, MeterCounts

from .errors import invalid

BYTES, PACKETS, BOTH = 1, 2, 3
_TOP = 1 << 63


def counter_from(message: p4r.CounterData, what: str) -> CounterData:
    if message.byte_count < 0 or message.packet_count < 0:
        raise invalid(f"{what}: a count is negative")
    return CounterData(message.packet_count, message.byte_count)


def counter_to(data: CounterData, unit: int) -> p4r.CounterData:
    """Returns the data for the counter's unit; numbers wrap at 63 bits."""
    message = p4r.CounterData()
    if unit in (BYTES, BOTH):
        message.byte_count = data.bytes % _TOP
    if unit in (PACKETS, BOTH):
        message.packet_count = data.packets % _TOP
    return message


def meter_from(message: p4r.MeterConfig, what: str) -> MeterConfig:
    """Returns a meter configuration. v1model's meters are two-rate ones, without an excess burst."""
    if message.eburst:
        raise invalid(f"{what}: eburst belongs to single rate meters")
    config = MeterConfig(message.cir, message.cburst, message.pir, message.pburst)
    if min(config.cir, config.cburst, config.pir, config.pburst) < 0:
        raise invalid(f"{what}: a rate or burst is negative")
    if config.pir < config.cir:
        raise invalid(f"{what}: the peak rate {config.pir} is below the committed rate {config.cir}")
    return config


def meter_to(config: MeterConfig) -> p4r.MeterConfig:
    return p4r.MeterConfig(cir=config.cir, cburst=config.cburst, pir=config.pir, pburst=config.pburst)


def colours_to(counts: MeterCounts) -> p4r.MeterCounterData:
    """Packets and bytes of each colour, whatever the meter's own unit is."""
    return p4r.MeterCounterData(
        green=counter_to(counts.green, BOTH),
        yellow=counter_to(counts.yellow, BOTH),
        red=counter_to(counts.red, BOTH),
    )


def check_zero(message: p4r.MeterCounterData, what: str) -> None:
    """Checks that a controller sets counters to 0 only (9.4)."""
    for one in (message.green, message.yellow, message.red):
        if one.byte_count or one.packet_count:
            raise invalid(f"{what}: counters of colours are reset, not written: send 0")
