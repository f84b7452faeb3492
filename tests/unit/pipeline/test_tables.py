"""The folder of a pipeline: one process at a time, and queries that were killed before they began."""

from __future__ import annotations

from pathlib import Path

import pytest

from treecast.spark_connectors.pipeline.tables import InUse, Tables


def test_a_folder_has_one_pipeline_at_a_time(tmp_path: Path) -> None:
    first, second = Tables(tmp_path), Tables(tmp_path)
    assert first.id == second.id
    first.lock()
    assert second.running
    with pytest.raises(
        InUse, match=r"process \d+ runs a pipeline on .*: stop it, or give another --data folder"
    ):
        second.lock()
    first.release()
    assert not second.running
    second.lock()
    second.release()


@pytest.mark.parametrize(
    ("files", "cleared"),
    [
        ([], False),
        (["metadata"], False),
        (
            ["metadata", "offsets/.0.6f1.tmp", "offsets/..0.6f1.tmp.crc"],
            True,
        ),  # killed while it wrote the first
        (["metadata", "offsets/0", "offsets/.0.crc"], False),
        (["metadata", "offsets/0", "offsets/.1.6f1.tmp", "commits/0"], False),
    ],
)
def test_a_query_that_was_killed_before_its_first_batch_begins_anew(
    tmp_path: Path, files: list[str], cleared: bool
) -> None:
    tables = Tables(tmp_path)
    folder = Path(tables.checkpoint("bronze"))
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    assert tables.make_way("bronze") is cleared
    left = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert left == (set() if cleared else set(files))
    assert not tables.make_way("bronze")
