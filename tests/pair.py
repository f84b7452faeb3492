"""Two daemons of one cluster, for tests and commands that compare two hosts with one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from treecast.middleware.daemon.process import DaemonProcess


@contextmanager
def pair(
    root: Path, flags: Sequence[str], show: Callable[[str], object] = print
) -> Iterator[tuple[DaemonProcess, DaemonProcess]]:
    """Runs daemon `a`, and `b`, which joins it. `show` gets their logs, which must not hold a traceback."""
    both = [*flags, "--fabric", "127.0.0.1:0"]
    first = DaemonProcess(root / "a", [*both, "--name", "a"])
    second: DaemonProcess | None = None
    try:
        first.start()
        joins = ["--join", first.ready["control"], "--join-token", f"@{root / 'a' / 'join-token'}"]
        second = DaemonProcess(root / "b", [*both, "--name", "b", *joins])
        yield first, second.start()
    finally:
        logs = []
        for daemon in (second, first):
            if daemon is not None:
                if daemon.running:
                    daemon.stop()
                logs.append(daemon.clean_up())
        show("\n".join(logs))
    assert all("Traceback" not in log for log in logs), logs
