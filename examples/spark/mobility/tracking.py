"""Sightings to movements between scanners, with Spark's state per device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MOVEMENTS = (
    "key string, cloud string, address string, origin string, target string, "
    "left double, arrived double, speed double"
)
STATE = "place string, time double"


def movements(sightings: Any, places: dict[str, float]) -> Any:
    """Returns a row for each movement of a device between scanners: when, and how fast (m/s).

    `sightings` has cloud, address, place, time. A device's last sighting is its state, so a movement may
    begin in one micro-batch and end in another.
    """
    import pandas as pd

    def follow(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        cloud, address = key
        before = state.get if state.exists else None
        rows = []
        seen = pd.concat(list(frames)).sort_values("time")
        for place, time in zip(seen["place"], seen["time"], strict=True):
            if before is not None and before[0] != place and time > before[1]:
                speed = abs(places[place] - places[before[0]]) / (time - before[1])
                rows.append((cloud, cloud, address, before[0], place, before[1], time, speed))
            before = (place, float(time))
        if before is not None:
            state.update(before)
        names = [column.split()[0] for column in MOVEMENTS.split(", ")]
        yield pd.DataFrame(rows, columns=names)

    from pyspark.sql.streaming.state import GroupStateTimeout

    grouped = sightings.groupBy("cloud", "address")
    return grouped.applyInPandasWithState(follow, MOVEMENTS, STATE, "append", GroupStateTimeout.NoTimeout)
