"""A folder on LazyFS, a FUSE file system that keeps what was not forced to the disk in a cache of its own.

`lose` empties that cache, as a power loss does. LazyFS is built elsewhere; the variable LAZYFS names its
program. It does not lose entries of directories: those are lost in `tests/unit/storage/test_power.py`.
"""

from __future__ import annotations

import os
import random
import select
import shutil
import subprocess
import time
from pathlib import Path

VARIABLE = "LAZYFS"
_MOUNT_S = 20.0
_ANSWER_S = 60.0
_CONFIGURATION = """[faults]
fifo_path="{folder}/faults"
fifo_path_completed="{folder}/done"
[cache]
apply_eviction=false
[cache.simple]
custom_size="0.4GB"
blocks_per_page=1
[filesystem]
log_all_operations=false
logfile="{folder}/log"
"""


def missing() -> str:
    """Returns why there is no LazyFS here; empty if there is one."""
    program = os.environ.get(VARIABLE, "")
    if not program:
        return f"{VARIABLE} does not name a built LazyFS (github.com/dsrhaslab/lazyfs)"
    if not os.access(program, os.X_OK):
        return f"{VARIABLE}={program} is no program"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK) or shutil.which("fusermount3") is None:
        return "FUSE cannot be used here: it needs /dev/fuse and fusermount3"
    return ""


class LazyFs:
    """The mounted folder is `path`; `under` holds what is on the disk."""

    def __init__(self, folder: Path) -> None:
        self.path, self.under = folder / "mnt", folder / "root"
        for made in (self.path, self.under):
            made.mkdir(parents=True)
        self._folder = folder.resolve()
        configuration = folder / "lazyfs.toml"
        configuration.write_text(_CONFIGURATION.format(folder=self._folder))
        under = f"subdir={self.under.resolve()}"
        # its name alone: LazyFS takes a path with "-o" in it for an option
        command = [
            os.path.abspath(os.environ[VARIABLE]),
            str(self.path.resolve()),
            "--config-path",
            configuration.name,
        ]
        command += ["-o", "modules=subdir", "-o", under, "-f"]
        with (folder / "said").open("wb") as said:
            self._process = subprocess.Popen(command, stdout=said, stderr=said, cwd=folder)
        self._wait_mounted()
        self._done = os.open(self._folder / "done", os.O_RDWR | os.O_NONBLOCK)

    def _wait_mounted(self) -> None:
        deadline = time.monotonic() + _MOUNT_S
        while not (self.path.is_mount() and (self._folder / "done").exists()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"LazyFS did not mount: {(self._folder / 'said').read_text()[-2000:]}")
            time.sleep(0.05)

    def lose(self) -> None:
        """Loses everything that was not forced to the disk."""
        self._tell("lazyfs::clear-cache")
        if not select.select([self._done], [], [], _ANSWER_S)[0]:
            raise RuntimeError("LazyFS did not empty its cache")
        os.read(self._done, 4096)

    def write_back(self) -> None:
        """Writes everything to the disk, as the kernel does after some seconds. Returns when it is done."""
        log, deadline = self._folder / "log", time.monotonic() + _ANSWER_S
        size = log.stat().st_size
        self._tell("lazyfs::cache-checkpoint")
        while b"checkpoint is done" not in log.read_bytes()[size:]:
            if time.monotonic() > deadline:
                raise RuntimeError("LazyFS did not write its cache back")
            time.sleep(0.02)

    def _tell(self, command: str) -> None:
        with (self._folder / "faults").open("w") as faults:
            faults.write(command + "\n")

    def close(self) -> None:
        subprocess.run(["fusermount3", "-u", "-z", str(self.path)], check=False, capture_output=True)
        os.close(self._done)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Tearing:
    """Files that only grow, some of which end after a power loss in a part of what was not forced: the kernel
    had begun to write it."""

    def __init__(self, data: Path, rng: random.Random) -> None:
        """Reads the files as they are before the loss."""
        found = [path for suffix in ("journal", "log") for path in data.rglob(f"*.{suffix}")]
        self._before = {path: path.read_bytes() for path in sorted(found)}
        self._rng = rng

    def tear(self) -> int:
        """Adds such a part to some files. Returns their number."""
        torn = 0
        for path, data in self._before.items():
            left = path.stat().st_size if path.exists() else len(data)
            if left < len(data) and path.read_bytes() == data[:left] and self._rng.random() < 0.5:
                with path.open("ab") as file:
                    file.write(data[left : left + self._rng.randint(1, len(data) - left)])
                    file.flush()
                    os.fsync(file.fileno())
                torn += 1
        return torn
