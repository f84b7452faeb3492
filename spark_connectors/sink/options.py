"""The options of a write, named as in Spark's Kafka sink; each error names its option."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from msgspec import Struct

from treecast.middleware.model.records import Compression

from .. import kafka_options
from ..errors import OptionError

EFFECTIVELY_ONCE, AT_LEAST_ONCE = "effectivelyOnce", "atLeastOnce"
MAX_MS = 2**31 - 1  # about 24 days
MAX_BATCH = 10**18 - 1  # 18 digits (`broker/transactions/parts.py`)

COMPARE, COUNTS, SKIP = "compare", "counts", "skip"

_KNOWN = (
    *("topic", "queryName", "batchId", "delivery", "repeatedBatch"),
    *("stagingLeaseMs", "writeTimeoutMs", "localDaemon"),
)
_IDLE = ("includeHeaders",)  # a column `headers` is always written, as by Spark's own sink
_SPARKS = ("path", "checkpointlocation", "queryname")  # Spark hands them on


class SinkOptions(Struct, frozen=True):
    """A write's options. `bootstrap` is empty for this host's daemon."""

    bootstrap: str
    topic: str  # if empty, the column `topic` applies
    query: str  # if empty, Spark's own, or a separate write
    batch: int | None  # of a batch write that is part of a job that may be repeated
    transactional: bool
    lease_ms: int
    write_timeout: float  # seconds
    local_daemon: bool
    compression: Compression
    without_effect: tuple[str, ...] = ()  # options that were given and change nothing
    repeated: str = COMPARE  # what a repeated batch must have in common with the committed one


def parse_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Checks and reads all options. OptionError names the one that is wrong."""
    given = {name.lower(): value.strip() for name, value in options.items()}
    for name in options:
        _check_name(name)
    idle = kafka_options.check(kafka_options.SINK, options)
    idle += [name for name in _IDLE if name.lower() in given]
    read = SinkOptions(
        bootstrap=given.get("kafka.bootstrap.servers", ""),
        topic=given.get("topic", ""),
        query=given.get("queryname", ""),
        batch=_number("batchId", given["batchid"], 0, MAX_BATCH) if "batchid" in given else None,
        transactional=_one_of(
            "delivery", given.get("delivery", EFFECTIVELY_ONCE), (EFFECTIVELY_ONCE, AT_LEAST_ONCE)
        )
        == EFFECTIVELY_ONCE,
        lease_ms=_number("stagingLeaseMs", given.get("stagingleasems", "900000"), 1),
        write_timeout=_number("writeTimeoutMs", given.get("writetimeoutms", "60000"), 1) / 1000,
        local_daemon=_one_of("localDaemon", given.get("localdaemon", "true"), ("true", "false")) == "true",
        repeated=_one_of("repeatedBatch", given.get("repeatedbatch", COMPARE), (COMPARE, COUNTS, SKIP)),
        without_effect=tuple(idle),
        compression=_compression(given.get("kafka.compression.type", "none")),
    )
    if read.batch is not None and streaming:
        raise OptionError("batchId is an option of batch writes only; Spark numbers the batches of a stream")
    if not streaming and (read.batch is None) != (not read.query):
        raise OptionError(
            "queryName and batchId go together: a batch write that names both is done once, however often it "
            "is repeated"
        )
    return read


def _check_name(name: str) -> None:
    lowered = name.lower()
    if lowered in (*_SPARKS, *map(str.lower, _IDLE)) or lowered.startswith(kafka_options.PREFIX):
        return
    known = {word.lower(): word for word in _KNOWN}
    if lowered in known:
        return
    close = difflib.get_close_matches(lowered, known, 1)
    advice = f"; did you mean {known[close[0]]}?" if close else f"; there are {', '.join(sorted(_KNOWN))}"
    raise OptionError(f"there is no option {name} of a write{advice}")


def _number(name: str, text: str, least: int, most: int = MAX_MS) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise OptionError(f"{name} is a whole number from {least} to {most}, not {text!r}")
    return int(text)


def _one_of(name: str, text: str, allowed: tuple[str, ...]) -> str:
    for word in allowed:
        if text.lower() == word.lower():
            return word
    raise OptionError(f"{name} is {' or '.join(allowed)}, not {text!r}")


def _compression(text: str) -> Compression:
    names = {codec.name.lower(): codec for codec in Compression}
    return names[_one_of("kafka.compression.type", text, tuple(names))]
