"""Looks at files that people change go on, whatever happens in one."""

from __future__ import annotations

import asyncio

import pytest

from treecast.middleware.daemon import watching
from treecast.middleware.daemon.watching import Watching


async def test_an_error_that_nobody_foresaw_ends_no_looking(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once as long as it lasts."""
    monkeypatch.setattr(watching, "_LOOKS", 0.0)
    faults = [RecursionError("deep"), RecursionError("deep"), None, ValueError("other"), None]
    looked = asyncio.Event()

    def look() -> None:
        if not faults:
            looked.set()
            return
        if (fault := faults.pop(0)) is not None:
            raise fault

    made = Watching(look)
    made.start()
    async with asyncio.timeout(60.0):
        await looked.wait()
    await made.close()
    assert [one.exc_info[0] for one in caplog.records if one.exc_info] == [RecursionError, ValueError]
