"""Device configs as sent by controllers: P4 source, possibly inside `p4.tmp.P4DeviceConfig`.

    P4DeviceConfig:  1 reassign (bool) | 2 extras (message) | 3 device_data (bytes)

Controllers made for bmv2's first P4Runtime server wrap their configs this way. P4Runtime itself does not
define the content of `p4_device_config`. Pure.
"""

from __future__ import annotations

from typing import Final

_REASSIGN: Final = 0x08  # field 1, a varint
_EXTRAS: Final = 0x12  # field 2, with a length
_DATA: Final = 0x1A  # field 3, with a length
_LONGEST_VARINT: Final = 10


def unwrapped(config: bytes) -> bytes:
    """Returns the content of a P4DeviceConfig, or the bytes themselves if they are not one.

    The message's tags are control characters, with which no P4 source begins.
    """
    data: bytes | None = None
    position = 0
    while position < len(config):
        tag = config[position]
        if tag not in (_REASSIGN, _EXTRAS, _DATA):
            return config
        number, position = _varint(config, position + 1)
        if tag == _REASSIGN:
            if number < 0:
                return config
            continue
        if not 0 <= number <= len(config) - position:
            return config
        if tag == _DATA:
            data = config[position : position + number]
        position += number
    return config if data is None else data


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns (number, position after it); (-1, end) for an unterminated varint."""
    number = 0
    for place, byte in enumerate(data[position : position + _LONGEST_VARINT]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, position + place + 1
    return -1, len(data)
