"""A daemon that reports the functions of ours that it enters: a child process, and its handle in the parent.

The child is `treecast up` with a profile function in each of its threads. It listens on a Unix socket, and
replies to `begin` and `end` with a line each; the reply to `end` lists the functions entered in between. A
function counts when it starts; a coroutine that resumes does not start again. Comprehensions are part of the
function around them. Writes of a face or the fabric to a socket are noted as well, as there a message leaves
the host. The loop is asyncio's own, since no profile function sees the writes of uvloop.
"""

from __future__ import annotations

import inspect
import os
import socket
import sys
import threading
import time
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import msgspec

from treecast.middleware.daemon.process import DaemonProcess

from .way import Entry

ROOT = Path(__file__).resolve().parents[2]
OURS = tuple(f"{ROOT / folder}{os.sep}" for folder in ("middleware", "shims", "agents", "spark_connectors"))
LINKED = f"{ROOT / 'src' / 'treecast'}{os.sep}"  # an editable install imports through the links
SOCKET = "WALK_SOCKET"
WRITES = frozenset(
    {"send", "sendto", "sendmsg", "write", "writev"}
)  # methods of a socket, and functions of `os` with its descriptor
TRANSPORT = frozenset(
    write.__code__ for write in (_SelectorSocketTransport.write, _SelectorSocketTransport.writelines)
)
LEAVES = ("shims/", "middleware/fabric/")
_PAUSES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_BEGIN, _END = b"begin\n", b"end\n"
_COMMAND_SECONDS = 60.0


class Recorder:
    """A profile function. Each code object is judged once; other code costs one look-up."""

    def __init__(self) -> None:
        self._entered: list[tuple[CodeType, int, bool]] | None = None
        self._files: dict[CodeType, str] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        entered = self._entered
        if entered is None:
            return
        code, caller = frame.f_code, frame.f_back
        if event == "c_call":
            if is_write(argument) and self._file(code).startswith(LEAVES):
                entered.append((code, time.monotonic_ns(), True))
        elif event == "call":
            if self._file(code):
                if begins(frame):
                    entered.append((code, time.monotonic_ns(), False))
            elif code in TRANSPORT and caller and self._file(caller.f_code).startswith(LEAVES):
                entered.append((caller.f_code, time.monotonic_ns(), True))

    def _file(self, code: CodeType) -> str:
        if code not in self._files:
            self._files[code] = ours(code)
        return self._files[code]

    def begin(self) -> None:
        self._entered = []

    def end(self) -> list[Entry]:
        entered, self._entered = self._entered or [], None
        return [Entry(self._files[code], code.co_qualname, at, writes) for code, at, writes in entered]


def ours(code: CodeType) -> str:
    """Returns the file of a function of ours, from the repository's root; empty for all others."""
    if code.co_name.startswith("<") and code.co_name != "<lambda>":
        return ""
    path = code.co_filename
    if path.startswith(LINKED):
        path = str(ROOT / path.removeprefix(LINKED))
    return str(Path(path).relative_to(ROOT)) if path.startswith(OURS) else ""


def is_write(function: Any) -> bool:
    """Returns whether a function in C writes to a socket."""
    return function.__name__ in WRITES and isinstance(function.__self__, socket.socket | ModuleType)


def begins(frame: FrameType) -> bool:
    """Returns whether a frame is entered for the first time; RESUME's argument tells."""
    code = frame.f_code
    return not code.co_flags & _PAUSES or code.co_code[frame.f_lasti + 1] & 3 == 0


def _serve(recorder: Recorder, listener: socket.socket) -> None:
    sys.setprofile(None)
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as lines:
        for line in lines:
            answer: Any = None
            if line == _BEGIN:
                recorder.begin()
            else:
                answer = recorder.end()
            connection.sendall(msgspec.json.encode(answer) + b"\n")


def main() -> int:
    """Runs `treecast up` in this process, traced."""
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # as if it were not installed
    from treecast.middleware.cli import main as treecast

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.environ[SOCKET])
    listener.listen(1)
    recorder = Recorder()
    threading.Thread(target=_serve, args=(recorder, listener), daemon=True).start()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    treecast()
    return 0


class TracedDaemon(DaemonProcess):
    """A daemon as a child process; `begin` and `end` enclose the trace."""

    def __init__(self, data: Path, *flags: str) -> None:
        super().__init__(data, flags)
        self._path = self.scratch / "walk.sock"
        self._environment[SOCKET] = str(self._path)
        self._environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])  # this very tree
        self._control: socket.socket | None = None

    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        return [python, "-m", "tests.walk.host", *arguments]

    def begin(self) -> None:
        self._ask(_BEGIN)

    def end(self) -> list[Entry]:
        return msgspec.json.decode(self._ask(_END), type=list[Entry])

    def _ask(self, command: bytes) -> bytes:
        if self._control is None:
            self._control = socket.socket(socket.AF_UNIX)
            self._control.settimeout(_COMMAND_SECONDS)
            self._control.connect(str(self._path))
        self._control.sendall(command)
        with self._control.makefile("rb") as lines:
            return lines.readline()

    def __exit__(self, *raised: object) -> None:
        if self._control is not None:
            self._control.close()
        super().__exit__(*raised)


if __name__ == "__main__":
    sys.exit(main())
