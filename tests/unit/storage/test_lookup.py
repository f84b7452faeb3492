"""Finding records by time, compared with brute force."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.model.records import Compression, Record
from treecast.middleware.wire.record_batch import build_batch

Kit = Any


@settings(max_examples=80)
@given(st.data())
def test_against_brute_force(kit: Kit, data: st.DataObject) -> None:
    """Timestamps in any order, several segments, every codec, a start and a limit anywhere."""
    with kit.directory() as path:
        config = kit.config(
            {"segment.bytes": 400, "index.interval.bytes": data.draw(st.sampled_from([0, 200]))}
        )
        log = kit.open(path, config)
        records: list[tuple[int, int]] = []
        for _ in range(data.draw(st.integers(0, 15))):
            stamps = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=4))
            codec = data.draw(st.sampled_from(list(Compression)))
            kit.append(log, build_batch([Record(b"k", b"v", (), t) for t in stamps], compression=codec))
            records += [(len(records) + number, stamp) for number, stamp in enumerate(stamps)]
        if data.draw(st.booleans()):
            log.close()
            log = kit.open(path, config)
        start = log.delete_before(data.draw(st.integers(0, len(records))))
        limit = data.draw(st.integers(start, len(records)))
        for timestamp in range(32):
            expected = next(((o, t, 0) for o, t in records if t >= timestamp and start <= o), None)
            if expected is not None and expected[0] >= limit:
                expected = None
            assert log.offset_for_time(timestamp, limit) == expected
        left = [(o, t) for o, t in records if o >= start]
        newest = max((t for _, t in left), default=-1)
        assert log.max_timestamp_offset() == next(((o, t, 0) for o, t in left if t == newest), None)


def test_only_a_little_is_read(kit: Kit, path: Path) -> None:
    """The index leads to the place: a damaged beginning is not read."""
    log = kit.open(path, kit.config({"index.interval.bytes": 0}))
    for number in range(100):
        kit.append(log, kit.batch(timestamp=1000 * number))
    file = path / "00000000000000000000.log"
    content = bytearray(file.read_bytes())
    content[:100] = bytes(100)
    file.write_bytes(content)
    assert log.offset_for_time(90_500, 100) == (91, 91_000, 0)
