"""The trust of the host that has the authority, over a restored ledger."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.daemon.test_door import until

from treecast.middleware.api import trust_member
from treecast.middleware.api.certificates import Identity, identity_of
from treecast.middleware.api.private_file import write_private
from treecast.middleware.api.trust import own_identity
from treecast.middleware.api.trust_calls import Done, Rotate
from treecast.middleware.api.trust_files import ADMINISTRATOR_CERTIFICATE, FOLDER
from treecast.middleware.control.trust.authority import LEDGER
from treecast.middleware.daemon import securing
from treecast.middleware.daemon.first_secured import make_secured
from treecast.middleware.daemon.securing import Secured
from treecast.middleware.daemon.users_file import FILE


async def test_a_ledger_from_before_a_renewal_keeps_neither_host_nor_administrator_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_secured(tmp_path, "h1", "", "admin", b"secret")
    folder = tmp_path / FOLDER
    backup = (folder / LEDGER).read_bytes()

    def administrator() -> Identity:
        return identity_of((folder / ADMINISTRATOR_CERTIFICATE).read_bytes())

    async def run(*, renewed: bool) -> Secured:
        """Starts, and waits for new certificates of both if these are to be."""
        before = own_identity(tmp_path).serial, administrator().serial
        made = Secured(tmp_path, "h1", "127.0.0.1:0", tmp_path / FILE)
        await made.open("")
        if renewed:
            await until(lambda: own_identity(tmp_path).serial != before[0])
            await until(lambda: administrator().serial != before[1])
        await made.close()
        return made

    with monkeypatch.context() as due:
        for module in (securing, trust_member):
            due.setattr(module, "RENEW_SECONDS", 400 * 86_400.0)
        await run(renewed=True)
    write_private(folder / LEDGER, backup)
    secured = await run(renewed=True)
    assert secured.authority is not None
    assert secured.trust.accepts(own_identity(tmp_path))
    assert secured.trust.identity == own_identity(tmp_path)
    assert isinstance(secured.authority.answer(Rotate(), administrator()), Done)
    assert "restored to an older state" in secured.authority.trouble
    kept = own_identity(tmp_path).serial
    again = await run(renewed=False)
    assert again.trust.identity.serial == kept
