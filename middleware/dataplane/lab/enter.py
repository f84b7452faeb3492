"""Starts a command inside a namespace. Run as a program, by its path; imports no module of Treecast.

    enter.py NETNS HOSTS_FILE HOST_NAME PARENT -- COMMAND ...

The command sees the namespace's network, /sys of that network, HOSTS_FILE as /etc/hosts and HOST_NAME as the
machine's name. It ends with the process PARENT, unless that is 0.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWNET = 0x20000, 0x04000000, 0x40000000
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x80000
_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
NOT_FOUND, NOT_RUN = 127, 126  # as shells answer


def enter(netns: str, hosts_file: str, host_name: str) -> None:
    """Moves this process into the namespace. Raises OSError, which names the refused call."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(result: int, what: str) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{what}: {os.strerror(number)}")

    descriptor = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    call(libc.setns(descriptor, _CLONE_NEWNET), f"setns {netns}")
    os.close(descriptor)
    call(libc.unshare(_CLONE_NEWNS | _CLONE_NEWUTS), "unshare")
    socket.sethostname(host_name)
    call(libc.mount(b"", b"/", b"none", _MS_SLAVE | _MS_REC, None), "mount / as slave")
    libc.umount2(b"/sys", _MNT_DETACH)  # may not be mounted
    call(libc.mount(b"sysfs", b"/sys", b"sysfs", 0, None), "mount /sys")
    if os.path.exists("/etc/hosts"):
        call(libc.mount(hosts_file.encode(), b"/etc/hosts", b"none", _MS_BIND, None), "mount /etc/hosts")


def end_with(parent: int) -> None:
    """Makes the kernel kill this process, and the command it becomes, when `parent` ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        raise SystemExit(NOT_RUN)


def main(arguments: list[str]) -> int:
    """Starts the command. Returns only if that failed."""
    netns, hosts_file, host_name, parent, _, *command = arguments
    if int(parent):
        end_with(int(parent))
    try:
        enter(netns, hosts_file, host_name)
    except OSError as error:
        print(f"treecast lab: {host_name} cannot be entered: {error}", file=sys.stderr)
        return NOT_RUN
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"treecast lab: {command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
