"""Load generators of `treecast bench` and of the comparisons in bench/.

`run_bench(kind, options)` with kind "produce", "fetch" or "latency" runs one load against a Kafka face to its
end; `as_table` and `as_json` show its result.
"""

from .bench import BenchOptions, Kind, Result, as_json, as_table, run_bench
from .frames import LoadError

__all__ = ["BenchOptions", "Kind", "LoadError", "Result", "as_json", "as_table", "run_bench"]
