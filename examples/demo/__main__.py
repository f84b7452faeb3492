"""The demo: `python -m examples.demo`, or `make demo`.

1. Two daemons start on empty directories, like two hosts: north, and south, which joins it. 2. A kafka-python
producer sends 100,000 records to north: the lines of this repository's own files. 3. A confluent-kafka group
of two processes reads them from south; one is killed with SIGKILL, the other
   takes over.
4. While records are in flight, north is killed with SIGKILL and restarted, and then south. 5. The whole topic
is read once more from both, and compared with the acknowledged records. 6. Clients of Kafka, AMQP and MQTT
beside north publish an order each; clients of all three beside south get all of them.

Exit code 0 only if nothing is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .clients import Amiss
from .results import table
from .story import Demo


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description="Treecast in half a minute.")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--json", action="store_true", help="the results as JSON on standard output")
    options = parser.parse_args()
    console = Console(stderr=options.json)
    columns = (TextColumn("{task.description:>20}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="treecast-demo-") as folder,
        Progress(*columns, console=console) as progress,
    ):
        acknowledged = progress.add_task("acknowledged", total=options.records)
        read = progress.add_task("read by the group", total=options.records)

        def show(acks: int, reads: int) -> None:
            progress.update(acknowledged, completed=acks)
            progress.update(read, completed=reads)

        demo = Demo(options.records, lambda text: progress.console.print(f"- {text}"), show)
        try:
            results = demo.run(Path(folder))
        except Amiss as error:
            console.print(f"[red]{error}")
            return 1
    if options.json:
        results_json: dict[str, Any] = asdict(results) | {"good": results.good}
        print(json.dumps(results_json))
    else:
        console.print(table(results))
    return 0 if results.good else 1


if __name__ == "__main__":
    sys.exit(main())
