"""`treecast coordinator`: its flags are some of the daemon's."""

from __future__ import annotations

from collections.abc import Sequence

from .up import Foreground

_DESCRIPTION = (
    "Runs a cluster's coordinator in the foreground, as a process of its own. When it serves it prints one"
    " line, `ready control=...`; its log goes to standard error. Hosts join it with --join and the token in"
    " `join-token` of its data directory."
)


def coordinator(arguments: Sequence[str]) -> int:
    """Runs the coordinator; answers the exit code."""
    from treecast.middleware.daemon.coordinate import SETTINGS, run

    return Foreground("coordinator", _DESCRIPTION, SETTINGS).run(arguments, run)
