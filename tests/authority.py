"""Certificates for tests, by the program openssl: an authority, and what it signs."""

from __future__ import annotations

import subprocess
from pathlib import Path

_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """An authority of certificates. Files that it makes hold the key and the certificate, in PEM."""

    def __init__(self, folder: Path, openssl: str, name: str = "authority") -> None:
        self._folder, self._openssl = folder, openssl
        self._key = folder / f"{name}.key"
        self.path = folder / f"{name}.pem"
        files = ["-keyout", str(self._key), "-out", str(self.path)]
        self._run("req", "-x509", *_NEW, "-days", "2", "-subj", f"/CN={name}", *files)

    def signs(self, file: str, subject: str, names: str = "IP:127.0.0.1", days: int = 2) -> Path:
        """Returns a new file with a key and its certificate. `days` below 0: it has expired."""
        key, asked, made = (self._folder / f"{file}.{end}" for end in ("key", "csr", "crt"))
        self._run("req", *_NEW, "-subj", subject, "-keyout", str(key), "-out", str(asked))
        extensions = self._folder / f"{file}.ext"
        extensions.write_text(f"subjectAltName={names}\n")
        signer = ["-CA", str(self.path), "-CAkey", str(self._key), "-CAcreateserial"]
        files = ["-in", str(asked), "-out", str(made), "-extfile", str(extensions)]
        self._run("x509", "-req", *signer, "-days", str(days), *files)
        both = self._folder / f"{file}.pem"
        both.write_text(key.read_text() + made.read_text())
        return both

    def _run(self, *arguments: str) -> None:
        subprocess.run([self._openssl, *arguments], check=True, capture_output=True)
