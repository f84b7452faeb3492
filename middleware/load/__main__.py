"""A load run in a separate process, started by a harness that measures the server meanwhile.

It reads one JSON line (`{"kind": ..., "options": {...}}`), prints `ready` once everything is encoded and
connected, reads a line, runs the load, and prints one JSON line (`as_json`, or `{"error": ...}`).
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
