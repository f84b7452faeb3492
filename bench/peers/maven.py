"""Jars named in a POM, fetched once by Maven into `.cache`, and sources of ours compiled against them."""

from __future__ import annotations

import contextlib
import fcntl
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_STAMP = "complete"


@dataclass(frozen=True)
class Jars:
    """`what` describes the jars in messages; `name` is their folder's, before the version; `key` is the POM's
    property with the version.
    """

    what: str
    name: str
    pom: Path
    key: str

    @property
    def version(self) -> str:
        """The version in the POM."""
        found = re.search(rf"<{re.escape(self.key)}>([^<]+)</{re.escape(self.key)}>", self.pom.read_text())
        if found is None:
            raise RuntimeError(f"{self.pom} names no {self.key}")
        return found[1].strip()

    @property
    def folder(self) -> Path:
        return ROOT / ".cache" / f"{self.name}-{self.version}"

    @property
    def present(self) -> bool:
        stamp = self.folder / _STAMP
        return stamp.exists() and stamp.stat().st_mtime >= self.pom.stat().st_mtime

    def missing_tools(self, *more: str) -> list[str]:
        """Returns which programs are not here: running takes `java`, and `mvn` while jars are missing."""
        needed = ["java", *more] if self.present else ["java", *more, "mvn"]
        return [name for name in needed if shutil.which(name) is None]

    def ensure(self) -> list[Path]:
        """Returns all jars by name; the first call fetches them. Safe to call from several processes at once.

        Raises RuntimeError if they are not available.
        """
        folder = self.folder
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder.parent / f"{folder.name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.present:
                self._fetch(folder)
        return sorted(folder.glob("*.jar"))

    def _fetch(self, folder: Path) -> None:
        if missing := self.missing_tools():
            raise RuntimeError(f"{self.what} needs {' and '.join(missing)} on the PATH")
        for old in folder.glob("*.jar"):
            old.unlink()
        command = ["mvn", "-B", "-q", "-f", str(self.pom), "dependency:copy-dependencies"]
        done = subprocess.run(
            [*command, f"-DoutputDirectory={folder}"], capture_output=True, check=False, text=True
        )
        if done.returncode != 0:
            said = f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
            said = next((line for line in done.stdout.splitlines() if "Could not" in line), said)
            raise RuntimeError(f"Maven could not fetch the jars of {self.what}: {said}")
        (folder / _STAMP).touch()


def compiled(jars: Jars, sources: Sequence[Path]) -> Path:
    """Returns the folder with what `javac` makes of `sources`; made once for each text of them.

    Raises RuntimeError with the compiler's words if it refuses them.
    """
    text = b"".join(path.read_bytes() for path in sources)
    found = jars.folder / "classes" / f"{zlib.crc32(text):08x}"
    if not found.is_dir():
        path = ":".join(map(str, jars.ensure()))
        with tempfile.TemporaryDirectory(dir=jars.folder) as folder:
            made = Path(folder) / "made"
            command = ["javac", "-encoding", "UTF-8", "-cp", path, "-d", str(made), *map(str, sources)]
            done = subprocess.run(command, capture_output=True, check=False, text=True)
            if done.returncode != 0:
                names = ", ".join(path.name for path in sources)
                raise RuntimeError(f"javac refused {names}:\n{done.stderr[-4000:]}")
            found.parent.mkdir(exist_ok=True)
            with contextlib.suppress(OSError):  # another process was faster
                made.rename(found)
    return found
