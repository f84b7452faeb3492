"""Spark on a site: a `local-cluster` whose driver is on the first host, with an executor on each."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.fault.hosts.site import KAFKA, Amiss, Site

from treecast.spark_connectors.workers import light_home

HERE = Path(__file__).parent
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # several JVMs start and end on few cores
RUNTIME = "TREECAST_RUNTIME_DIR"  # a lab is found by its creator's runtime directory, not by a host's own
ANSWER_S = 400.0


class Cluster:
    """Returns when all executors have registered. They and the driver end with the lab."""

    def __init__(self, site: Site, folder: Path, rows: int, size: int) -> None:
        self._log = folder / "spark.log"
        address = site.lab.ipv4(site.names[0])
        settings = {
            "SPARK_HOME": str(light_home(folder)),  # executors work in a subfolder of it
            "SPARK_LOCAL_IP": address,
            "SPARK_SUBMIT_OPTS": JAVA,
            "PYSPARK_PYTHON": sys.executable,
        }
        asked = (
            str(len(site.names)),
            f"{address}:{KAFKA}",
            str(java_home(site, folder)),
            str(rows),
            str(size),
        )
        words = ("env", *(f"{name}={value}" for name, value in settings.items()))
        command = (*words, sys.executable, str(HERE / "job.py"), *asked)
        with self._log.open("ab") as log:
            self._driver = site.lab.start(site.names[0], *command, stdin=subprocess.PIPE, stderr=log)
        self._answer()

    def ask(self, *words: str) -> dict[str, Any]:
        """Returns the driver's reply to one line. Raises Amiss if the driver has ended."""
        assert self._driver.stdin is not None
        self._driver.stdin.write(" ".join(words).encode() + b"\n")
        self._driver.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._driver.stdout is not None
        watchdog = threading.Timer(ANSWER_S, self._driver.kill)
        watchdog.start()
        try:
            for line in self._driver.stdout:
                if line.startswith(b"{"):
                    found: dict[str, Any] = json.loads(line)
                    return found
        finally:
            watchdog.cancel()
        log = self._log.read_text(errors="replace")
        raise Amiss(f"the driver has ended, or was too slow; its log ends:\n{log[-3000:]}")


def java_home(site: Site, folder: Path) -> Path:
    """Makes a JAVA_HOME for executors whose `java` is `java.py`."""
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin:{os.environ['PATH']}")
    assert java is not None, "java is there"
    hosts = ",".join(f"{host}={site.lab.ipv4(host)}" for host in site.names)
    words = [
        "env",
        "-u",
        RUNTIME,
        *(f"{name}={os.environ[name]}" for name in [RUNTIME] if name in os.environ),
    ]
    words += [sys.executable, str(HERE / "java.py"), site.lab.id, java, hosts]
    script = folder / "java" / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    script.chmod(0o755)
    return script.parent.parent
