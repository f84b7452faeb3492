"""The jars of Kafka's server and tools, fetched once by Maven."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
POM = HERE / "pom.xml"
_STAMP = "complete"


def kafka_version() -> str:
    """The version that pom.xml names."""
    found = re.search(r"<kafka\.version>([^<]+)</kafka\.version>", POM.read_text())
    if found is None:
        raise RuntimeError(f"{POM} names no kafka.version")
    return found[1].strip()


def missing_tools() -> list[str]:
    """Which programs are not here: running Kafka takes `java`, and `mvn` while jars are missing."""
    needed = ["java"] if jars_present() else ["java", "mvn"]
    return [name for name in needed if shutil.which(name) is None]


def jar_folder() -> Path:
    return ROOT / ".cache" / f"kafka-{kafka_version()}"


def jars_present() -> bool:
    stamp = jar_folder() / _STAMP
    return stamp.exists() and stamp.stat().st_mtime >= POM.stat().st_mtime


def ensure_jars() -> Path:
    """The folder with all jars; the first call fetches them. Safe to call from several processes at once."""
    folder = jar_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars_present():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    if missing := missing_tools():
        raise RuntimeError(f"Apache Kafka needs {' and '.join(missing)} on the PATH")
    for old in folder.glob("*.jar"):
        old.unlink()
    done = subprocess.run(
        ["mvn", "-B", "-q", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"],
        capture_output=True,
        check=False,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"Maven could not fetch Kafka's jars:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    (folder / _STAMP).touch()


def class_path() -> str:
    """All jars in the order in which Kafka's own scripts list them: by name."""
    return ":".join(str(jar) for jar in sorted(ensure_jars().glob("*.jar")))
