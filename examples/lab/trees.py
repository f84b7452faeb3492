"""Converts `treecast lab up FILE --json` on stdin to the tree manager's description on stdout.

Every host is a daemon with its control address at port 7671. Names of hosts are known inside the lab, so the
tree manager must run in one of its hosts.
"""

from __future__ import annotations

import json
import sys
from typing import Any

CONTROL_PORT = 7671


def described(lab: dict[str, Any], strategy: str = "broadcast") -> str:
    """Returns TOML for `middleware/control/trees/description.py`. JSON's lists and strings are also
    TOML's.
    """
    lines = [f"links = {json.dumps(lab['links'])}", f'strategy = "{strategy}"', "", "[switches]"]
    lines += [f"{one['node']} = {json.dumps(one['p4runtime'])}" for one in lab["switches"]]
    for node in lab["nodes"]:
        if node["kind"] == "host" and node["interface"] == "eth0":
            lines += ["", f"[hosts.{node['node']}]"]
            lines += [f'control = "{node["node"]}:{CONTROL_PORT}"', f'mac = "{node["mac"]}"']
    return "\n".join(lines)


if __name__ == "__main__":
    print(described(json.load(sys.stdin)))
