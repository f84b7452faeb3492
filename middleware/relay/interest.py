"""Interest: the topics that this host wants, announced to all other hosts, and the topics that they want.

What is wanted are wishes (`model.wishes`). Other hosts are told their patterns, and beside these the filters
of patterns that are wanted with a filter only (`narrowing`). The set of patterns has a version. Each
connected host is told of changes and acknowledges the version it knows. `confirmed` waits a bounded time for
all of them: an unreachable or silent host is counted and not waited for, and is told everything when its
connection is back.

A host's interest stays valid until the host changes it: an extra copy does no harm. A starting host therefore
announces nothing (`hold`) until its clients' stored sessions are resumed. Until another host has announced
its interest to this run, the interest that it last recorded at the coordinator applies (`remember`).
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from treecast.middleware.fabric.channel import Method, Methods, Natural
from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.counters import RelayCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.wishes import Pattern, Wish, matches

from .narrowing import Narrowing, narrowed

_log = Log(__name__)

T = TypeVar("T")
Record = Callable[[int, Sequence[str]], Awaitable[object]]
OnChange = Callable[[int, Iterable[Pattern], Iterable[Pattern]], None]  # host, patterns added, removed


class InterestRequest(Struct, frozen=True, array_like=True):
    """The caller's interest.

    `base`: the version to which `added` and `removed` apply; 0: `added` is the complete set. `version`:
    counts from 1 in each run of the caller. The answer is the version known now; if it differs from
    `version`, the caller must send the complete set.
    """

    base: Natural
    version: Natural
    added: list[Pattern] = []
    removed: list[Pattern] = []


INTEREST: Final = Method(60, InterestRequest, int)


class InterestSettings(Struct, frozen=True):
    """Times in seconds."""

    confirm: float = 1.0  # the longest wait for all hosts to acknowledge
    call: float = 5.0
    record_again: float = 5.0  # retry interval of the record at the coordinator
    record_every: float = 1.0  # shortest interval between records
    most_patterns: int = 1_000_000  # per host


class _Neighbour:
    """The interest that this host and one other host know of each other."""

    def __init__(self) -> None:
        self.up = False
        self.life = 0  # number of the connection
        self.acknowledged = 0
        self.asking = 0  # number of the connection with a call under way
        self.version = 0
        self.patterns: set[Pattern] = set()


class Interest:
    """Interest in both directions. All calls come from the event loop.

    The owner of the channels calls `host_up` and `host_down`.
    """

    def __init__(
        self,
        methods: Methods,
        settings: InterestSettings,
        counters: RelayCounters,
        record: Record | None = None,
    ) -> None:
        """`record`: records version and patterns at the coordinator."""
        self.on_change: OnChange | None = None  # called when the interest of another host changes
        self._methods = methods
        self._settings = settings
        self._counters = counters
        self._record = record
        self._counts: dict[Wish, int] = {}  # users
        self._patterns: dict[Pattern, int] = {}  # wishes with it
        self._narrowing = Narrowing()
        self._version = 1
        self._history: dict[int, tuple[list[Pattern], list[Pattern]]] = {}  # version -> added, removed
        self._added: dict[Pattern, None] = {}
        self._removed: dict[Pattern, None] = {}
        self._soon = False
        self._held = False
        self._neighbours: dict[int, _Neighbour] = {}
        self._waiting: list[tuple[int, Future[None]]] = []
        self._recording: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        methods.register(INTEREST, self._heard)

    # --- what this host wants

    @property
    def version(self) -> int:
        """The version of the current interest, including changes not yet announced."""
        return self._version + (1 if self._soon else 0)

    def patterns(self) -> list[Pattern]:
        return list(self._patterns)

    def wishes(self) -> list[Wish]:
        """Returns what this host wants, for those who know filters."""
        return list(self._counts)

    def want(self, wish: Wish) -> int:
        """Counts one more user of `wish`. Returns the version that includes it."""
        if _counted(self._counts, wish):
            if _counted(self._patterns, wish.pattern):
                self._change(wish.pattern, self._added, self._removed)
            self._narrow(*self._narrowing.add(wish))
        return self.version

    def unwant(self, wish: Wish) -> int:
        """Counts one user of `wish` less. Returns the version that includes the change."""
        if _discounted(self._counts, wish):
            if _discounted(self._patterns, wish.pattern):
                self._change(wish.pattern, self._removed, self._added)
            self._narrow(*self._narrowing.remove(wish))
        return self.version

    def _narrow(self, added: Iterable[Pattern], removed: Iterable[Pattern]) -> None:
        for pattern in added:
            self._change(pattern, self._added, self._removed)
        for pattern in removed:
            self._change(pattern, self._removed, self._added)

    def _change(self, pattern: Pattern, to: dict[Pattern, None], other: dict[Pattern, None]) -> None:
        if pattern in other:
            del other[pattern]
        else:
            to[pattern] = None
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._say)

    def hold(self) -> None:
        """Suspends announcements until `release`."""
        self._held = True

    def release(self) -> None:
        """Resumes announcements and tells all connected hosts."""
        self._held = False
        for host, neighbour in self._neighbours.items():
            if neighbour.up:
                self._tell(host, neighbour)

    @property
    def known(self) -> bool:
        """Whether every reachable host has acknowledged the current interest."""
        return not self._soon and all(
            one.acknowledged >= self._version for one in self._neighbours.values() if one.up
        )

    def confirmed(self, version: int) -> Future[None]:
        """Returns a future that is done when all reachable hosts know `version`, or after a time-out."""
        loop = asyncio.get_running_loop()
        done: Future[None] = loop.create_future()
        self._waiting.append((version, done))
        timer = loop.call_later(self._settings.confirm, self._time_out, done)
        done.add_done_callback(lambda _: timer.cancel())
        self._confirm()
        return done

    def _time_out(self, done: Future[None]) -> None:
        if not done.done():
            self._counters.unconfirmed_interest += 1
            done.set_result(None)
            self._confirm()

    def _confirm(self) -> None:
        if not self._waiting:
            return
        known = min((one.acknowledged for one in self._neighbours.values() if one.up), default=None)
        reached = self._version if known is None else known
        for version, done in self._waiting:
            if not done.done() and version <= reached:
                done.set_result(None)
        self._waiting = [one for one in self._waiting if not one[1].done()]

    # --- announcing it

    def _say(self) -> None:
        """Announces all changes of this turn of the event loop as one version."""
        self._soon = False
        self._version += 1
        self._history[self._version] = (list(self._added), list(self._removed))
        self._added.clear()
        self._removed.clear()
        for host, neighbour in self._neighbours.items():
            if neighbour.up:
                self._tell(host, neighbour)
        self._forget_history()
        self._confirm()
        self._record_soon()

    def _tell(self, host: int, neighbour: _Neighbour) -> None:
        """Tells `host` what it has not acknowledged, one call at a time.

        Changes during a call are sent after its answer.
        """
        asked = neighbour.asking == neighbour.life
        if self._held or asked or neighbour.acknowledged >= self._version:
            return
        neighbour.asking = neighbour.life
        task = asyncio.get_running_loop().create_task(self._ask(host, neighbour), name=f"interest to {host}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, host: int, neighbour: _Neighbour) -> None:
        life = neighbour.life
        request = self._request(neighbour.acknowledged)
        known = 0
        try:
            answer, _ = await self._methods.ask(host, INTEREST, request, self._settings.call)
            known = answer if answer == request.version else 0
            if known == 0 and request.base == 0:
                raise TreecastError(Fault.INTERNAL, f"the host answered with version {answer}")
        except TreecastError as error:
            _log.info("host cannot be told of interest", host=host, error=error)
            # No pause after a new connection, which has a call of its own.
            if life == neighbour.life:
                await asyncio.sleep(self._settings.confirm)
        if self._neighbours.get(host) is not neighbour or life != neighbour.life:
            return
        neighbour.asking = 0
        if neighbour.up:
            # 0 after a failure: what the host has taken is unknown, so that it is told everything.
            neighbour.acknowledged = known
            self._confirm()
            self._tell(host, neighbour)

    def _request(self, base: int) -> InterestRequest:
        """Returns all changes since `base`, or the complete set if the history does not reach back."""
        if base < 1 or any(version not in self._history for version in range(base + 1, self._version + 1)):
            return InterestRequest(0, self._version, [*self._patterns, *self._narrowing.all()])
        added: dict[Pattern, None] = {}
        removed: dict[Pattern, None] = {}
        for version in range(base + 1, self._version + 1):
            more, less = self._history[version]
            for pattern in more:
                removed.pop(pattern, None)
                added[pattern] = None
            for pattern in less:
                added.pop(pattern, None)
                removed[pattern] = None
        return InterestRequest(base, self._version, list(added), list(removed))

    def _forget_history(self) -> None:
        oldest = min((one.acknowledged for one in self._neighbours.values() if one.up), default=self._version)
        for version in [version for version in self._history if version <= oldest]:
            del self._history[version]
        # Bounded: a host that is farther behind is told everything.
        while len(self._history) > 1000:
            del self._history[min(self._history)]

    # --- for the record

    def _record_soon(self) -> None:
        if self._record is not None and self._recording is None:
            self._recording = asyncio.get_running_loop().create_task(self._write(), name="record of interest")

    async def _write(self) -> None:
        """Records the latest version at the coordinator; retries until it succeeds."""
        assert self._record is not None
        try:
            written = 0
            while written < self._version:
                version = self._version
                try:
                    await self._record(version, [spelled(pattern) for pattern in self._patterns])
                    written = version
                    await asyncio.sleep(self._settings.record_every)
                except TreecastError:
                    await asyncio.sleep(self._settings.record_again)
        finally:
            self._recording = None

    # --- what others want

    def remember(self, host: int, patterns: Iterable[str]) -> None:
        """Sets the recorded interest of a host that has announced none to this run."""
        neighbour = self._neighbours.setdefault(host, _Neighbour())
        if neighbour.version != 0:
            return
        before, neighbour.patterns = neighbour.patterns, {read(pattern) for pattern in patterns}
        added, removed = neighbour.patterns - before, before - neighbour.patterns
        if (added or removed) and self.on_change is not None:
            self.on_change(host, added, removed)

    def hosts(self) -> list[int]:
        """Returns the hosts with known interest or with a connection so far."""
        return list(self._neighbours)

    def of(self, host: int) -> set[Pattern]:
        """Returns the patterns that `host` last announced, without filters."""
        return {pattern for pattern in self.told_by(host) if narrowed(pattern) is None}

    def wants(self, host: int, pattern: Pattern) -> bool:
        """Whether `host` has announced the pattern."""
        neighbour = self._neighbours.get(host)
        return neighbour is not None and pattern in neighbour.patterns

    def told_by(self, host: int) -> set[Pattern]:
        """Returns all that `host` last announced."""
        neighbour = self._neighbours.get(host)
        return set(neighbour.patterns) if neighbour is not None else set()

    def hosts_for(self, levels: Pattern) -> list[int]:
        """Returns the hosts that want the topic with these levels."""
        return [
            host
            for host, neighbour in self._neighbours.items()
            if any(matches(pattern, levels) for pattern in neighbour.patterns)
        ]

    def _heard(self, host: int, request: InterestRequest, body: memoryview) -> tuple[int, Buffer]:
        neighbour = self._neighbours.setdefault(host, _Neighbour())
        patterns, wanted = neighbour.patterns, set(_checked(request.added))
        if request.base == 0:
            added, removed = wanted - patterns, patterns - wanted
        elif request.base == neighbour.version:
            added, removed = wanted - patterns, patterns.intersection(_checked(request.removed)) - wanted
        else:
            return neighbour.version, b""
        count = len(patterns) + len(added) - len(removed)
        if count > self._settings.most_patterns:
            raise TreecastError(
                Fault.POLICY_VIOLATION, f"{count} patterns; {self._settings.most_patterns} are kept"
            )
        patterns -= removed
        patterns |= added
        neighbour.version = request.version
        self._counters.interest_heard += 1
        if (added or removed) and self.on_change is not None:
            self.on_change(host, added, removed)
        return neighbour.version, b""

    # --- hosts come and go

    def host_up(self, host: int) -> None:
        """Tells a newly connected host everything: it may be a new run."""
        neighbour = self._neighbours.setdefault(host, _Neighbour())
        neighbour.up = True
        neighbour.life += 1
        neighbour.acknowledged = 0
        self._tell(host, neighbour)

    def host_down(self, host: int) -> None:
        """Stops waiting for a disconnected host."""
        neighbour = self._neighbours.get(host)
        if neighbour is not None:
            neighbour.up = False
            neighbour.acknowledged = 0
            self._confirm()

    def host_left(self, host: int) -> None:
        """Forgets a host that has left the cluster, and its interest."""
        neighbour = self._neighbours.pop(host, None)
        if neighbour is not None and neighbour.patterns and self.on_change is not None:
            self.on_change(host, (), neighbour.patterns)
        self._confirm()

    async def close(self) -> None:
        tasks = [*self._tasks, *([self._recording] if self._recording is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _, done in self._waiting:
            done.cancel()


def _counted(counts: dict[T, int], one: T) -> bool:
    """Counts one more. Returns whether it is the first."""
    count = counts.get(one, 0)
    counts[one] = count + 1
    return not count


def _discounted(counts: dict[T, int], one: T) -> bool:
    """Counts one less. Returns whether it was the last."""
    count = counts[one] - 1
    if count:
        counts[one] = count
    else:
        del counts[one]
    return not count


def spelled(pattern: Pattern) -> str:
    """Returns a pattern's recorded form: levels joined by `/`, with `/` and `%` inside levels escaped."""
    # `%` first: otherwise the escape of `/` would be escaped as well.
    return "/".join(level.replace("%", "%25").replace("/", "%2F") for level in pattern)


def read(spelling: str) -> Pattern:
    """Returns the pattern of a recorded form; the inverse of `spelled`."""
    return tuple(level.replace("%2F", "/").replace("%25", "%") for level in spelling.split("/"))


def _checked(patterns: list[Pattern]) -> list[Pattern]:
    """Returns `patterns`. Raises INVALID_REQUEST for a pattern without levels."""
    if not all(patterns):
        raise TreecastError(Fault.INVALID_REQUEST, "a pattern needs at least one level")
    return patterns
