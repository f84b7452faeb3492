"""A load run in a process of its own, started by a harness that accounts for the server meanwhile.

One JSON line comes in (`{"kind": ..., "options": {...}}`), `ready` goes out once everything is encoded and
connected, a line comes in, the load runs, and one JSON line goes out (`as_json`, or `{"error": ...}`).
"""

from __future__ import annotations

import json
import sys

from .bench import BenchOptions, as_json, prepare
from .frames import LoadError


def main() -> int:
    order = json.loads(sys.stdin.readline())
    kind, options = order["kind"], BenchOptions(**order["options"])
    try:
        run = prepare(kind, options)
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(as_json(kind, options, run())), flush=True)
    except (LoadError, OSError) as error:
        print(json.dumps({"error": f"{kind}: {error}"}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
