"""An authority of its own for tests with TLS, and certificates of both ends that it has signed.

Erlang's TLS takes no certificate that a peer has signed itself.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

NAMES = "subjectAltName=IP:127.0.0.1,DNS:localhost"


class Authority:
    """Files in one folder. `ca`: the authority's certificate; `server`, `client`: certificates with their
    keys, as PEM. The common name of both is `localhost`."""

    def __init__(self, folder: Path, openssl: str) -> None:
        self._folder = folder
        self._openssl = openssl
        self.ca, self._key = folder / "ca.pem", folder / "ca.key"
        self._run("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=authority",
                  "-keyout", str(self._key), "-out", str(self.ca))  # fmt: skip
        self.server = self._signed("server")
        self.client = self._signed("client")

    def _signed(self, name: str) -> Path:
        request, key, made = (self._folder / f"{name}.{end}" for end in ("csr", "key", "pem"))
        self._run("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost",
                  "-keyout", str(key), "-out", str(request))  # fmt: skip
        extensions = self._folder / "extensions"
        extensions.write_text(f"{NAMES}\n")
        self._run("x509", "-req", "-in", str(request), "-CA", str(self.ca), "-CAkey", str(self._key),
                  "-CAcreateserial", "-days", "2", "-extfile", str(extensions),
                  "-out", str(made))  # fmt: skip
        made.write_text(made.read_text() + key.read_text())
        return made

    def _run(self, *words: str) -> None:
        subprocess.run([self._openssl, *words], check=True, capture_output=True)
