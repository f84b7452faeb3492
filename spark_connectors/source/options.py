"""The options of a read, named as in Spark's Kafka source; each error names its option."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec import Struct

from treecast.middleware.filters.errors import FilterError
from treecast.middleware.filters.evaluate import StatefulFilterError, check_stateless
from treecast.middleware.filters.parse import parse

from .. import kafka_options
from ..errors import OptionError
from .decoding import FAIL, FORMATS, MODES
from .java_regex import python_regex
from .offsets import EARLIEST, LATEST, MAX_OFFSET, Offsets, Partition, parse_assign, parse_offsets
from .zones import zone_of

T = TypeVar("T")

ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
STRATEGIES = ("error", "latest")
MAX_MS = 2**31 - 1  # of a time limit: about 24 days

_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_STREAMING = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "driverReadMaxRows")
_BATCH = (
    *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    "endingOffsetsByTimestampStrategy",
)
_COMMON = (
    *(
        "minPartitions",
        "maxRecordsPerPartition",
        "failOnDataLoss",
        "includeHeaders",
        "filter",
        "localDaemon",
        "readTimeoutMs",
    ),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
    "startingOffsetsByTimestampStrategy",
    *("format", "schema", "layout", "mode", "timeZone"),
)
# Options of the connector's Java consumers, which do not exist here: they are checked and change nothing.
_IDLE = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_KNOWN = (*_SUBSCRIPTIONS, *_STREAMING, *_BATCH, *_COMMON, *_IDLE)
MAX_DELAY_S = 15 * 60.0  # the connector's default of maxTriggerDelay
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class Bound(Struct, frozen=True):
    """The start or end of a read: `everywhere` (EARLIEST or LATEST), or by partition, or by time.

    A partition that `offsets` or `times` (ms since the Unix epoch) doesn't name has `everywhere`; `time`
    is for all.
    """

    everywhere: int
    offsets: Mapping[Partition, int] = {}
    times: Mapping[Partition, int] = {}
    time: int | None = None
    strict_time: bool = True  # no record at or after a time: an error; else the latest offset


class Subscription(Struct, frozen=True):
    """Which partitions: of `topics`, of topics that `pattern` matches whole, or just `partitions`."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: frozenset[Partition] = frozenset()

    def takes(self, partition: Partition) -> bool:
        """Returns whether the partition is read."""
        if self.partitions:
            return partition in self.partitions
        if self.pattern:
            return re.fullmatch(self.pattern, partition.topic) is not None
        return partition.topic in self.topics


class SourceOptions(Struct, frozen=True):
    """A read's options. `bootstrap` is empty for this host's daemon."""

    bootstrap: str
    subscription: Subscription
    starting: Bound
    ending: Bound
    max_rows: int | None
    min_partitions: int
    fail_on_data_loss: bool
    include_headers: bool
    filter: str | None
    isolation: str
    local_daemon: bool
    read_timeout: float  # seconds
    format: str = ""  # empty: values as they are
    layout: str = ""
    mode: str = FAIL
    time_zone: str = ""  # of timestamps without one; empty: the session's
    driver_rows: int = 0  # a micro-batch of at most this many rows is read beside the driver
    without_effect: tuple[str, ...] = ()  # options that were given and change nothing
    min_rows: int = 0  # a trigger waits for this many offsets, at most `max_delay` seconds
    max_delay: float = MAX_DELAY_S
    most_per_task: int = 0  # no task gets more offsets; 0: no limit


def parse_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Checks and reads all options. OptionError names the one that is wrong."""
    given = _Given(options, streaming)
    read = SourceOptions(
        bootstrap=given.text("kafka.bootstrap.servers", ""),
        subscription=_subscription(given),
        starting=_bound(given, "starting", LATEST if streaming else EARLIEST),
        ending=_bound(given, "ending", LATEST),
        max_rows=given.take("maxOffsetsPerTrigger", _positive, None),
        min_partitions=given.take("minPartitions", _positive, None) or 0,
        fail_on_data_loss=given.take("failOnDataLoss", _boolean, True),
        include_headers=given.take("includeHeaders", _boolean, False),
        filter=given.take("filter", _filter, None),
        isolation=given.take("kafka.isolation.level", _one_of(ISOLATION_LEVELS), ISOLATION_LEVELS[0]),
        local_daemon=given.take("localDaemon", _boolean, True),
        read_timeout=given.take("readTimeoutMs", _milliseconds, 60_000) / 1000,
        format=given.take("format", _one_of(FORMATS), ""),
        layout=given.text("layout", ""),
        mode=given.take("mode", _one_of(tuple(mode.lower() for mode in MODES)), FAIL).upper(),
        time_zone=given.take("timeZone", _zone, ""),
        driver_rows=given.take("driverReadMaxRows", _count, 0),
        without_effect=given.without_effect,
        min_rows=given.take("minOffsetsPerTrigger", _positive, 0),
        max_delay=given.take("maxTriggerDelay", _duration, MAX_DELAY_S),
        most_per_task=given.take("maxRecordsPerPartition", _positive, 0),
    )
    _check_decoding(given, read)
    if streaming and (read.ending.offsets or read.ending.everywhere != LATEST):
        raise OptionError("a stream has no endingOffsets; a batch has, with spark.read")
    if read.max_rows is not None and read.min_rows > read.max_rows:
        raise OptionError(
            f"minOffsetsPerTrigger {read.min_rows} is above maxOffsetsPerTrigger {read.max_rows}: no trigger "
            "could have both"
        )
    if given.has("maxTriggerDelay") and not read.min_rows:
        raise OptionError(
            "maxTriggerDelay goes with minOffsetsPerTrigger: it is how long a trigger waits for it"
        )
    return read


def _check_decoding(given: _Given, read: SourceOptions) -> None:
    if not read.format:
        for name in ("schema", "layout", "mode"):
            if given.has(name):
                raise OptionError(f"{name} goes with format, which is {' or '.join(FORMATS)}")
    if read.time_zone and read.format != "json":
        raise OptionError("timeZone goes with format json: it is that of timestamps that name none")
    if read.format and (read.format == "fixed") != bool(read.layout):
        raise OptionError("layout goes with format fixed, and says what lies where: for instance <iqd10s")


class _Given:
    """The options that were given, by lower-case name."""

    def __init__(self, options: Mapping[str, str], streaming: bool) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        self.without_effect = (*kafka_options.check(kafka_options.SOURCE, options), *self._idle(options))
        known = {name.lower(): name for name in _KNOWN}
        for name in options:
            lowered = name.lower()
            if lowered.startswith(kafka_options.PREFIX) or lowered in known or lowered == "path":
                continue
            close = difflib.get_close_matches(lowered, known, 1)
            advice = (
                f"; did you mean {known[close[0]]}?" if close else f"; there are {', '.join(sorted(_KNOWN))}"
            )
            raise OptionError(f"there is no option {name}{advice}")
        wrong = _BATCH if streaming else _STREAMING
        for name in wrong:
            if name.lower() in self._values:
                kind = "batch" if streaming else "streaming"
                raise OptionError(f"{name} is an option of {kind} reads only")

    def _idle(self, options: Mapping[str, str]) -> list[str]:
        """Returns the given options of `_IDLE` by these names, as Spark hands them on in lower case. Raises
        OptionError for no number.
        """
        found = {name: options[given] for given in options for name in _IDLE if name.lower() == given.lower()}
        for name, value in found.items():
            if name != "groupIdPrefix":
                _count(name, value.strip())
        return list(found)

    def has(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str, default: str) -> str:
        return self._values.get(name.lower(), default).strip()

    def take(self, name: str, read: Callable[[str, str], T], default: T) -> T:
        return read(name, self.text(name, "")) if self.has(name) else default


def _subscription(given: _Given) -> Subscription:
    chosen = [name for name in _SUBSCRIPTIONS if given.has(name)]
    if len(chosen) != 1:
        found = f"there are {' and '.join(chosen)}" if chosen else "there is none"
        raise OptionError(f"one of subscribe, subscribePattern and assign must name what to read; {found}")
    text = given.text(chosen[0], "")
    match chosen[0]:
        case "subscribe":
            topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
            if not topics:
                raise OptionError("subscribe names no topic; it is a list such as orders,payments")
            return Subscription(topics=topics)
        case "subscribePattern":
            if not text:
                raise OptionError("subscribePattern is empty; orders-.* would be one")
            try:
                pattern = python_regex(text)
                re.compile(pattern)
            except (re.error, ValueError) as error:
                raise OptionError(f"subscribePattern is no regular expression: {error}") from None
            return Subscription(pattern=pattern)
    return Subscription(partitions=parse_assign(text))


def _bound(given: _Given, which: str, default: int) -> Bound:
    """Returns the bound by time if a time is given, as it is more specific; else by offsets."""
    usual = "error" if which == "starting" else "latest"
    strategy = given.take(f"{which}OffsetsByTimestampStrategy", _one_of(STRATEGIES), usual)
    strict = strategy == "error"
    if given.has(f"{which}Timestamp"):
        time = given.take(f"{which}Timestamp", _natural, 0)
        return Bound(everywhere=default, time=time, strict_time=strict)
    if given.has(f"{which}OffsetsByTimestamp"):
        times: Offsets = given.take(f"{which}OffsetsByTimestamp", _times, {})
        return Bound(everywhere=default, times=times, strict_time=strict)
    name = f"{which}Offsets"
    text = given.text(name, "")
    match text.lower():
        case "":
            return Bound(everywhere=default)
        case "earliest" if which == "starting":
            return Bound(everywhere=EARLIEST)
        case "latest":
            return Bound(everywhere=LATEST)
    if not text.startswith("{"):
        words = "earliest, latest" if which == "starting" else "latest"
        raise OptionError(
            f'{name} is {words} or a JSON object such as {{"topic": {{"0": 23}}}}, not {text!r}'
        )
    lowest = EARLIEST if which == "starting" else LATEST
    return Bound(everywhere=default, offsets=parse_offsets(text, name, lowest=lowest))


def _times(name: str, text: str) -> Offsets:
    return parse_offsets(text, name, lowest=0)


def _zone(name: str, text: str) -> str:
    try:
        zone_of(text)
    except ValueError as error:
        raise OptionError(f"{name}: {error}") from None
    return text


def _positive(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise OptionError(f"{name} is a whole number above 0, not {text!r}")
    return int(text)


def _count(name: str, text: str) -> int:
    if not text.isdecimal():
        raise OptionError(f"{name} is a whole number, not {text!r}")
    return int(text)


def _milliseconds(name: str, text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= MAX_MS:
        raise OptionError(f"{name} is a whole number from 1 to {MAX_MS}, not {text!r}")
    return int(text)


def _duration(name: str, text: str) -> float:
    """Returns seconds of a time such as `15m`, as Spark writes it; a number alone is milliseconds."""
    found = re.fullmatch(r"([0-9]{1,12})\s*([a-z]*)", text.lower())
    unit = (found[2] or "ms") if found else ""
    if found is None or unit not in _UNITS_S:
        raise OptionError(f"{name} is a time such as 15m, 30s or 500ms, not {text!r}")
    return int(found[1]) * _UNITS_S[unit]


def _natural(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_OFFSET:
        raise OptionError(f"{name} is milliseconds since 1970, not {text!r}")
    return int(text)


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name} is true or false, not {text!r}")
    return text.lower() == "true"


def _one_of(allowed: tuple[str, ...]) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text.lower() not in allowed:
            raise OptionError(f"{name} is {' or '.join(allowed)}, not {text!r}")
        return text.lower()

    return read


def _filter(name: str, text: str) -> str:
    try:
        check_stateless(parse(text))
    except (FilterError, StatefulFilterError) as error:
        raise OptionError(f"{name}: {error}") from None
    return text
