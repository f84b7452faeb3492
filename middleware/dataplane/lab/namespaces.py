"""Named network namespaces, compatible with `ip netns`: files in /run/netns. Needs root.

In Linux a namespace belongs to a thread. So each operation inside one runs in a thread of its own: the
caller's threads never leave the machine's namespace.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

FOLDER = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_MS_BIND, _MS_SHARED = 0x1000, 0x100000
_MNT_DETACH = 2
_SIOCETHTOOL = 0x8946
# ETHTOOL_STXCSUM, _SSG, _STSO, _SGSO, _SGRO: checksums, scatter-gather, segmentation, both ways
_OFFLOADS = (0x17, 0x19, 0x1F, 0x24, 0x2C)
_END_SECONDS = 5.0

T = TypeVar("T")
_libc = ctypes.CDLL(None, use_errno=True)


def _call(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def path_of(name: str) -> Path:
    """Returns the file of a namespace."""
    return FOLDER / name


def listed(prefix: str) -> list[str]:
    """Returns the names that begin with `prefix`."""
    return sorted(path.name for path in FOLDER.glob(f"{prefix}*")) if FOLDER.is_dir() else []


def create(name: str) -> None:
    """Creates a namespace. Raises FileExistsError if the name exists."""
    _prepare_folder()
    path = path_of(name)
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o444))

    def make() -> None:
        _call(_libc.unshare(_CLONE_NEWNET), "unshare")
        own = f"/proc/self/task/{threading.get_native_id()}/ns/net"
        _call(_libc.mount(own.encode(), str(path).encode(), b"none", _MS_BIND, None), f"mount {path}")

    try:
        _in_thread(make)
    except BaseException:
        path.unlink()
        raise


def _prepare_folder() -> None:
    """Prepares /run/netns as `ip netns` does: a mount that is shared with other mount namespaces.

    An unmount here then also applies to the mount namespaces of running commands, whose copies would
    otherwise keep a removed network alive.
    """
    FOLDER.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor = os.open(FOLDER, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not is_mount(FOLDER):
            target = str(FOLDER).encode()
            _call(_libc.mount(target, target, b"none", _MS_BIND, None), f"mount {FOLDER}")
            _call(_libc.mount(b"none", target, b"none", _MS_SHARED, None), f"share {FOLDER}")
    finally:
        os.close(descriptor)


def is_mount(path: Path) -> bool:
    """Returns whether something is mounted there. `os.path.ismount` does not see bind mounts of one file
    system.
    """
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == str(path) for line in lines)  # field 5; /run/netns needs no escapes


def remove(name: str) -> None:
    """Ends the processes in a namespace and removes it with its interfaces. A missing one is not an error."""
    path = path_of(name)
    with suppress(FileNotFoundError):  # another process may remove it at the same time
        _end_processes(path)
        while is_mount(path):
            if _libc.umount2(str(path).encode(), _MNT_DETACH) != 0 and is_mount(path):
                _call(-1, f"unmount {path}")
        path.unlink()


def processes(path: Path) -> Iterator[int]:
    """Yields the processes in the namespace of this file, never our own."""
    wanted = os.stat(path)
    here = os.stat("/proc/self/ns/net")
    if (wanted.st_dev, wanted.st_ino) == (here.st_dev, here.st_ino) or wanted.st_dev != here.st_dev:
        return  # a file without a namespace, or a bind mount of the machine's own
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with suppress(OSError):  # it has ended meanwhile
                if os.stat(f"/proc/{entry}/ns/net").st_ino == wanted.st_ino:
                    yield int(entry)


def _end_processes(path: Path) -> None:
    """Sends SIGKILL until no process is left. Does not wait for them, because they are others' children."""
    deadline = time.monotonic() + _END_SECONDS
    while found := list(processes(path)):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise OSError(f"processes {found} in {path} do not end; `ps` says what they wait for")
        time.sleep(0.005)


def inside(name: str, function: Callable[[], T]) -> T:
    """Returns the result of `function`, called by a new thread inside the namespace."""

    def enter() -> T:
        with path_of(name).open() as namespace:
            _call(_libc.setns(namespace.fileno(), _CLONE_NEWNET), f"setns {name}")
        return function()

    return _in_thread(enter)


def _in_thread(function: Callable[[], T]) -> T:
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body, name="lab namespace")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def open_socket(name: str, family: int, kind: int, protocol: int = 0) -> socket.socket:
    """Returns a socket that lives in a namespace, to be used from anywhere."""
    return inside(name, lambda: socket.socket(family, kind, protocol))


# --- what a thread in a namespace does there


def write_setting(key: str, value: str) -> None:
    """Sets a kernel setting of the present namespace, as `net/ipv4/ip_forward`; missing ones are left."""
    with suppress(FileNotFoundError):
        Path("/proc/sys", key).write_text(value)


def turn_offloads_off(interface: str) -> None:
    """Turns off checksum and segmentation offloads, which no hardware would perform."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in _OFFLOADS:
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(value))
            fcntl.ioctl(control, _SIOCETHTOOL, request)
