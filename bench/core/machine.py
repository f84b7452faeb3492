"""The machine on which numbers were measured."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from bench.core.awake import how


def describe() -> dict[str, str]:
    """Returns processor, cores and whether they are kept awake, memory, kernel, Python, the present load
    average.
    """
    return {
        "processor": _first("/proc/cpuinfo", "model name"),
        "cores": str(os.cpu_count()),
        "memory": _first("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": _commit(),
        "kept awake": how() or "no",
        "load average": " ".join(f"{value:.2f}" for value in os.getloadavg()),
    }


def _first(path: str, key: str) -> str:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown"


def _commit() -> str:
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
        )
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"
