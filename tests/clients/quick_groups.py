"""A daemon whose groups of the new protocol (KIP-848) react quickly to their members."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treecast.middleware.daemon.process import DaemonProcess


@contextmanager
def quick_groups(folder: Path, session_timeout_ms: int = 6000) -> Iterator[DaemonProcess]:
    """Members send five heartbeats a second, so that tests need not wait. The end of the daemon's log is
    printed."""
    flags = ["--group-consumer-heartbeat-interval-ms", "200"]
    flags += ["--group-consumer-session-timeout-ms", str(session_timeout_ms)]
    daemon = DaemonProcess(folder / "data", flags)
    daemon.start()
    yield daemon
    if daemon.running:
        daemon.stop()
    log = daemon.clean_up()
    print(f"--- the end of the daemon's log\n{log[-20000:]}", file=sys.stderr)
    assert "Traceback" not in log
