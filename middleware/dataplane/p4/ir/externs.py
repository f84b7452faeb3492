"""The list of v1model's externs, and the engine's method for each.

Programs may call exactly these; the interpreter and the generator both have all of the methods.
"""

from __future__ import annotations

from typing import Final

METHODS: Final[dict[str, str]] = {
    "counter.count": "_count",
    "direct_counter.count": "_count_direct",
    "meter.execute_meter": "_execute_meter",
    "direct_meter.read": "_read_direct_meter",
    "register.read": "_read_register",
    "register.write": "_write_register",
    "Checksum16.get": "_checksum16",
    "hash": "_hash",
    "random": "_random",
    "verify_checksum": "_verify_checksum",
    "verify_checksum_with_payload": "_verify_checksum",
    "update_checksum": "_update_checksum",
    "update_checksum_with_payload": "_update_checksum",
    "mark_to_drop": "_mark_to_drop",
    "clone": "_clone",
    "clone_preserving_field_list": "_clone",
    "clone3": "_clone",
    "resubmit": "_resubmit",
    "resubmit_preserving_field_list": "_resubmit",
    "recirculate": "_recirculate",
    "recirculate_preserving_field_list": "_recirculate",
    "truncate": "_truncate",
    "digest": "_digest",
    "assert": "_assert",
    "assume": "_assert",
    "log_msg": "_log_msg",
}
"""By the name that `ExternCall` has: a function's, or object type and method."""

FUNCTIONS: Final = frozenset(name for name in METHODS if "." not in name)
OBJECTS: Final = frozenset(name.partition(".")[0] for name in METHODS if "." in name) | {
    "action_profile",  # without methods: tables have them
    "action_selector",
}
