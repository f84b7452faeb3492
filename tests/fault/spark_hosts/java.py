"""`java` for the executors of Spark's `local-cluster`: starts each executor in a lab host of its own.

    java.py LAB JAVA HOST=ADDRESS,... WORDS...

Spark starts all executors on the driver's host. The executor's number selects its host; it gets that host's
address and environment, as if Spark had started it on that machine.
"""

from __future__ import annotations

import os
import sys

from treecast.middleware.dataplane.lab.lab import replace_by_command


def main(arguments: list[str]) -> int:
    lab, java, listed, *words = arguments
    hosts = [pair.split("=") for pair in listed.split(",")]
    number = int(words[words.index("--executor-id") + 1])
    name, address = hosts[number % len(hosts)]
    words[words.index("--hostname") + 1] = address
    os.environ["SPARK_LOCAL_IP"] = address
    return replace_by_command(lab, name, [java, *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
