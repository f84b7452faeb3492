"""The record of a lab, written before its first namespace is created, so that anybody can remove the lab.

    <runtime dir>/lab/<id>/
      state.json        `State`
      hosts             /etc/hosts of all its nodes
      relay-<n>         the control socket of the relay of link n
      <host>/run/       the host's runtime directory
      <host>/log        output of the commands in the lab's file

Namespaces are named `treecast-lab.<id>.<node>`. An id is either `f` and a hash of the path of the lab's file
(the lab stays until it is taken down), or `p<pid>-<start>-<n>` of the process that owns it: when that process
has ended, the lab is a leftover, with or without its directory.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from treecast.middleware.api.discovery import runtime_dirs

from . import namespaces

PREFIX = "treecast-lab"
_OWNED = re.compile(r"p([0-9]+)-([0-9]+)-[0-9]+")
_numbers = itertools.count(1)


class Owner(msgspec.Struct, frozen=True):
    """A process, distinguished from a later one with its pid by its start, in clock ticks since boot."""

    pid: int
    start: int

    @property
    def alive(self) -> bool:
        return _start_of(self.pid) == self.start

    @classmethod
    def this(cls) -> Owner:
        return cls(os.getpid(), _start_of(os.getpid()) or 0)


class State(msgspec.Struct):
    """`owner`: the process that builds or owns the lab; None once it is independent."""

    id: str
    source: str
    owner: Owner | None
    hosts: list[str]
    relays: dict[str, int] = {}  # link's name: its number


def _start_of(pid: int) -> int | None:
    """Returns field 22 of /proc/<pid>/stat; None if the process does not exist or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def is_running(pid: int) -> bool:
    """Returns whether the process exists and has not ended."""
    return _start_of(pid) is not None


# --- names


def kept_id(file: Path) -> str:
    """Returns the id of the lab that is made from this file."""
    return "f" + hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:10]


def owned_id() -> str:
    """Returns a new id for a lab of this process."""
    owner = Owner.this()
    return f"p{owner.pid}-{owner.start}-{next(_numbers)}"


def namespace(lab_id: str, node: str) -> str:
    return f"{PREFIX}.{lab_id}.{node}"


def folder(lab_id: str = "", environment: Mapping[str, str] = os.environ) -> Path:
    """Returns the directory of a lab, or of all labs."""
    return runtime_dirs(environment)[0] / "lab" / lab_id


def relay_socket(lab_id: str, number: int) -> Path:
    """Returns the control socket of a link's relay."""
    return folder(lab_id) / f"relay-{number}"


# --- the file


def claim(lab_id: str) -> bool:
    """Creates a lab's directory. Returns False if it, or a namespace of this id, exists already."""
    folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        folder(lab_id).mkdir(mode=0o700)
    except FileExistsError:
        return False
    if namespaces.listed(namespace(lab_id, "")):
        folder(lab_id).rmdir()
        return False
    return True


def write(state: State) -> None:
    """Writes it whole or not at all."""
    path = folder(state.id) / "state.json"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(state))
    new.replace(path)


def read(lab_id: str) -> State | None:
    """Returns the state; None if it is missing or unreadable."""
    try:
        return msgspec.json.decode((folder(lab_id) / "state.json").read_bytes(), type=State)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


# --- leftovers


def remove(lab_id: str) -> bool:
    """Ends a lab's processes and removes it. Returns whether there was anything."""
    names = namespaces.listed(f"{PREFIX}.{lab_id}.")
    for name in names:
        namespaces.remove(name)
    known = folder(lab_id).exists()
    shutil.rmtree(folder(lab_id), ignore_errors=True)
    with suppress(OSError):
        folder().rmdir()
    return bool(names) or known


def existing() -> list[str]:
    """Returns the ids of all labs with any remains."""
    of_names = {name.split(".")[1] for name in namespaces.listed(f"{PREFIX}.")}
    of_folders = {path.name for path in folder().iterdir()} if folder().is_dir() else set()
    return sorted(of_names | of_folders)


def is_leftover(lab_id: str) -> bool:
    """Returns whether the process that owned it has ended."""
    if owned := _OWNED.fullmatch(lab_id):
        return not Owner(int(owned[1]), int(owned[2])).alive
    state = read(lab_id)
    return state is not None and state.owner is not None and not state.owner.alive


def sweep() -> list[str]:
    """Removes labs of dead owners. Returns their ids."""
    found = [lab_id for lab_id in existing() if is_leftover(lab_id)]
    for lab_id in found:
        remove(lab_id)
    return found
