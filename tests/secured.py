"""A secured cluster for tests in one process: an authority, hosts' certificates, and TLS by them."""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path

from treecast.middleware.api import certificates
from treecast.middleware.api.certificates import ADMINISTRATOR, HOST, Identity, Subject
from treecast.middleware.api.private_file import write_private
from treecast.middleware.api.trust import Trust
from treecast.middleware.api.trust_files import (
    AUTHORITY,
    HOST_CERTIFICATE,
    HOST_KEY,
    make_folder,
)
from treecast.middleware.control.trust.authority import Authority, found_authority

CLUSTER = "c1"


class SecuredCluster:
    """An authority at the real time, and hosts with a data directory each below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority: Authority = found_authority(make_folder(folder / "first"), CLUSTER, time.time)

    def certify(self, name: str, *, coordinator: bool = False) -> bytes:
        """Gives a host a certificate, for the key that it has or a new one. Returns it."""
        trust = make_folder(self.folder / name)
        if not (trust / HOST_KEY).exists():
            write_private(trust / HOST_KEY, certificates.new_key())
        asked = certificates.request((trust / HOST_KEY).read_bytes())
        made = self.authority.give_own(asked, Subject(CLUSTER, HOST, name, coordinator=coordinator))
        write_private(trust / AUTHORITY, (self.folder / "first" / "trust" / AUTHORITY).read_bytes())
        write_private(trust / HOST_CERTIFICATE, made)
        return made

    def host(self, name: str, *, coordinator: bool = False) -> Trust:
        """Returns the trust of a host with a new certificate, which has heard the keys."""
        self.certify(name, coordinator=coordinator)
        made = Trust(self.folder / name)
        made.learn(self.authority.keys())
        self.authority.on_keys.append(made.learn)
        return made

    def administrator(self, name: str = "root") -> Identity:
        asked = certificates.request(certificates.new_key())
        made = self.authority.give_own(asked, Subject(CLUSTER, ADMINISTRATOR, name))
        return certificates.identity_of(made)


class Caller:
    """A TLS connection to a listener of another host. `serial`: of the certificate that it showed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        shown = certificates.identity_of_peer(self.tls.getpeercert())
        self.serial = shown.serial if shown is not None else 0

    @property
    def tls(self) -> ssl.SSLObject:
        found: ssl.SSLObject = self.writer.get_extra_info("ssl_object")
        return found

    @classmethod
    async def call(cls, port: int, context: ssl.SSLContext) -> Caller:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=certificates.HOST_NAME
        )
        return cls(reader, writer)

    async def echoes(self, data: bytes) -> bool:
        self.writer.write(data)
        await self.writer.drain()
        return await self.reader.readexactly(len(data)) == data

    def close(self) -> None:
        self.writer.transport.abort()
