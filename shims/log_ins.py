"""Password checks of all faces: on threads of their own, in turn, and answered late when they fail.

A check costs up to a second of a processor, whoever asks for it. So all checks of a host share a few threads
of low priority; those that wait are taken in turn, one for each address and user name, so that a flood of
guesses delays its own user name only. A password that fitted before is known again by a keyed digest, without
a check.

The answer to a wrong password waits: `FIRST` s, and twice as long for each further one from the same address,
up to `LONGEST`. From this machine, whose applications share an address, wrong passwords count by user name as
well. The right password is answered at once, whatever came before it, so nobody locks out another client.
"""

from __future__ import annotations

import asyncio
import enum
import hashlib
import hmac
import os
import secrets
import threading
from collections import OrderedDict, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Protocol

from treecast.middleware.model.visitors import LOCAL

from .passwords import Secret

FIRST: Final = 0.1  # seconds
LONGEST: Final = 4.0  # seconds
FORGET: Final = 60.0  # seconds without a wrong password, after which the delay is `FIRST` again
MOST_WAITING: Final = 64  # checks of one address and user name
MOST_CHECKS: Final = 1024  # waiting ones in total
_MOST_KEPT: Final = 10_000  # entries of each table; the oldest are dropped
_NICE: Final = 10

Key = tuple[str, str]


class Outcome(enum.Enum):
    FITS = "fits"
    WRONG = "wrong"
    BUSY = "busy"  # too many checks wait; the client may try again


class Applicant(Protocol):
    """A connection whose password is checked."""

    def checked(self, outcome: Outcome) -> None:
        """Called once, on the loop, unless the client has gone."""


class Checks(Protocol):
    """The checks of a host: `LogIns`, or `Immediate`."""

    def check(
        self, address: str, name: str, password: bytes, secret: Secret, applicant: Applicant
    ) -> None: ...


class Immediate:
    """Checks at once on the caller's thread, for tests and tools."""

    def check(self, address: str, name: str, password: bytes, secret: Secret, applicant: Applicant) -> None:
        applicant.checked(Outcome.FITS if secret.fits(password) else Outcome.WRONG)


class Delays:
    """How long the answer to a wrong password waits. Pure; bounded."""

    def __init__(self) -> None:
        self._wrong: OrderedDict[Key, tuple[int, float]] = OrderedDict()

    def wrong(self, address: str, name: str, now: float) -> float:
        """Counts a wrong password. Returns the seconds that its answer waits."""
        keys = [(address, name)] if address == LOCAL else [(address, ""), (address, name)]
        return max(self._count(key, now) for key in keys)

    def _count(self, key: Key, now: float) -> float:
        count, last = self._wrong.pop(key, (0, now))
        count = count + 1 if now - last < FORGET else 1
        self._wrong[key] = count, now
        if len(self._wrong) > _MOST_KEPT:
            self._wrong.popitem(last=False)
        return float(min(FIRST * 2 ** min(count - 1, 16), LONGEST))


class Remembered:
    """Digests of passwords that fitted, keyed by a secret of this process."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._digests: OrderedDict[str, bytes] = OrderedDict()

    def knows(self, name: str, password: bytes, secret: Secret) -> bool:
        found = self._digests.get(name)
        return found is not None and hmac.compare_digest(found, self._digest(password, secret))

    def add(self, name: str, password: bytes, secret: Secret) -> None:
        self._digests[name] = self._digest(password, secret)
        if len(self._digests) > _MOST_KEPT:
            self._digests.popitem(last=False)

    def _digest(self, password: bytes, secret: Secret) -> bytes:
        stored = len(secret.stored).to_bytes(4, "big") + secret.stored
        return hashlib.blake2b(stored + password, key=self._key).digest()


class _Check:
    __slots__ = ("address", "applicant", "began", "name", "password", "secret")

    def __init__(
        self, address: str, name: str, password: bytes, secret: Secret, applicant: Applicant, began: float
    ) -> None:
        self.address = address
        self.name = name
        self.password = password
        self.secret = secret
        self.applicant = applicant
        self.began = began

    def fits(self) -> bool:
        return self.secret.fits(self.password)


class LogIns:
    """The password checks of one daemon. Used on one loop, until `close`."""

    def __init__(self, threads: int = 0) -> None:
        """`threads` 0: half of the processors."""
        self._threads = threads or max((os.cpu_count() or 1) // 2, 1)
        self._pool: ThreadPoolExecutor | None = None
        self._delays = Delays()
        self._remembered = Remembered()
        self._waiting: OrderedDict[Key, deque[_Check]] = OrderedDict()  # each key's turn comes in this order
        self._count = 0
        self._running = 0

    @property
    def waiting(self) -> int:
        return self._count

    def check(self, address: str, name: str, password: bytes, secret: Secret, applicant: Applicant) -> None:
        """Implements `Checks`."""
        now = asyncio.get_running_loop().time()
        one = _Check(address, name, password, secret, applicant, now)
        if self._remembered.knows(name, password, secret):
            applicant.checked(Outcome.FITS)
        elif secret.cheap:
            self._done(one, one.fits())
        else:
            self._enqueue(one)

    def wrong(self, address: str, name: str) -> float:
        """Counts a wrong proof that is no password, as of SCRAM. Returns the seconds its answer waits."""
        return self._delays.wrong(address, name, asyncio.get_running_loop().time())

    async def checked(self, address: str, name: str, password: bytes, secret: Secret) -> Outcome:
        """Does the same for a coroutine."""
        applicant = _Awaiting()
        self.check(address, name, password, secret, applicant)
        return await applicant.outcome

    def close(self) -> None:
        self._waiting.clear()
        self._count = 0
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    # --- in turn

    def _enqueue(self, one: _Check) -> None:
        name = one.name if one.secret.stored else ""  # all names of nobody share a place
        queue = self._waiting.setdefault((one.address, name), deque())
        if len(queue) >= MOST_WAITING or self._count >= MOST_CHECKS:
            one.applicant.checked(Outcome.BUSY)
            return
        queue.append(one)
        self._count += 1
        self._start()

    def _start(self) -> None:
        """Gives the free threads the checks whose turn it is."""
        while self._running < self._threads and self._waiting:
            key, queue = self._waiting.popitem(last=False)
            one = queue.popleft()
            if queue:
                self._waiting[key] = queue  # behind all others
            self._count -= 1
            self._running += 1
            loop = asyncio.get_running_loop()
            made = loop.run_in_executor(self._threads_of(), one.fits)
            made.add_done_callback(_Then(self, one))

    def _threads_of(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "log-in", initializer=_be_nice)
        return self._pool

    def ended(self, one: _Check, fits: bool) -> None:
        self._running -= 1
        self._start()
        self._done(one, fits)

    def _done(self, one: _Check, fits: bool) -> None:
        if fits:
            self._remembered.add(one.name, one.password, one.secret)
            one.applicant.checked(Outcome.FITS)
            return
        loop = asyncio.get_running_loop()
        delay = self._delays.wrong(one.address, one.name, loop.time())
        loop.call_at(one.began + delay, one.applicant.checked, Outcome.WRONG)


class _Then:
    """Ends a check on the loop."""

    def __init__(self, log_ins: LogIns, one: _Check) -> None:
        self._log_ins = log_ins
        self._one = one

    def __call__(self, made: asyncio.Future[bool]) -> None:
        fits = not made.cancelled() and made.exception() is None and made.result()
        self._log_ins.ended(self._one, fits)


class _Awaiting:
    """An applicant that a coroutine waits for."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def checked(self, outcome: Outcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


def _be_nice() -> None:
    """Lowers the priority of the calling thread, which Linux has for each."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
