"""The load process: reads an order as a JSON line, prints `ready`, reads a line, runs, and prints a result
line.
"""

from __future__ import annotations

import json
import sys

from .load import Order, prepare


def main() -> int:
    try:
        run = prepare(Order.from_json(json.loads(sys.stdin.readline())))
        print("ready", flush=True)
        sys.stdin.readline()
        result = run()
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        return 1
    print(json.dumps({"result": result}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
