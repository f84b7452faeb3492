"""How operators name the carriers of a host: `srv6`, `labels=FILE,relay`, `auto`, `unicast`."""

from __future__ import annotations

AUTO, UNICAST = "auto", "unicast"  # the fabric names the others


def carriers_of(text: str) -> dict[str, str]:
    """Returns the fabric's carriers beside unicast, the preferred first, and their options: NAME or
    NAME=OPTION.
    """
    found: dict[str, str] = {}
    for one in text.split(","):
        name, _, option = one.strip().partition("=")
        if name != UNICAST:
            found["ip-multicast" if name == AUTO else name] = option
    return found
