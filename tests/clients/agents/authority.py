"""Certificates of a broker and of its agent. Erlang's TLS takes none that a peer has signed itself."""

from __future__ import annotations

from pathlib import Path

from tests.authority import Authority as Signer

_NAMES = "IP:127.0.0.1,DNS:localhost"


class Authority:
    """Files in one folder. `ca`: the authority's certificate; `server`, `client`: certificates with their
    keys, as PEM. The common name of both is `localhost`."""

    def __init__(self, folder: Path, openssl: str) -> None:
        signer = Signer(folder, openssl)
        self.ca = signer.path
        self.server, self.client = (
            signer.signs(end, "/CN=localhost", _NAMES) for end in ("server", "client")
        )
