"""The jars of Spark's Kafka connector, fetched once by Maven."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
POM = HERE / "pom.xml"
# What a Spark has not; the rest of the connector's dependencies are Spark's own jars.
WANTED = (
    "spark-sql-kafka-0-10_2.13",
    "spark-token-provider-kafka-0-10_2.13",
    "kafka-clients",
    "commons-pool2",
)
_STAMP = "complete"


def spark_version() -> str:
    """The version that pom.xml names."""
    found = re.search(r"<spark\.version>([^<]+)</spark\.version>", POM.read_text())
    if found is None:
        raise RuntimeError(f"{POM} names no spark.version")
    return found[1].strip()


def _folder() -> Path:
    return ROOT / ".cache" / f"spark-kafka-{spark_version()}"


def _present() -> bool:
    stamp = _folder() / _STAMP
    return stamp.exists() and stamp.stat().st_mtime >= POM.stat().st_mtime


def missing_tools() -> list[str]:
    """Which programs are not here that Spark takes."""
    return [name for name in ("java",) if shutil.which(name) is None]


def connector_jars() -> list[Path]:
    """The jars; the first call fetches them. Safe to call from several processes at once."""
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _present():
            _fetch(folder)
    return sorted(folder.glob("*.jar"))


def _fetch(folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise RuntimeError("Spark's Kafka connector needs mvn on the PATH")
    for old in folder.glob("*.jar"):
        old.unlink()
    command = ["mvn", "-B", "-q", "-f", str(POM), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={folder}", f"-DincludeArtifactIds={','.join(WANTED)}"]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    if done.returncode != 0:
        said = next((line for line in done.stdout.splitlines() if "Could not" in line), done.stdout[-500:])
        raise RuntimeError(f"Maven could not fetch the jars of Spark's Kafka connector: {said}")
    (folder / _STAMP).touch()
