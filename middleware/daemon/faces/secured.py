"""Certificates and passwords of faces, read from the files named in the settings."""

from __future__ import annotations

import ssl
from pathlib import Path

from treecast.shims.listening import TlsSettings
from treecast.shims.passwords import PasswordError, Passwords
from treecast.shims.tls import tls_context

from ..listeners import StartError


def tls_settings(face: str, certificate: str, key: str, authority: str) -> TlsSettings:
    """Returns certificate, key and authority of a face's TLS, after a trial load.

    Empty means not given. Raises StartError.
    """
    if not certificate:
        raise StartError(f"--{face}-tls needs a certificate: give --{face}-tls-certificate FILE")
    tls = TlsSettings(Path(certificate), Path(key) if key else None, Path(authority) if authority else None)
    for flag, path in (("certificate", tls.certificate), ("key", tls.key), ("authority", tls.authority)):
        try:
            if path is not None:
                path.read_bytes()
        except OSError as error:
            raise StartError(f"--{face}-tls-{flag} {path}: {error.strerror}") from error
    try:
        tls_context(tls)
    except ssl.SSLError as error:
        raise StartError(
            f"--{face}-tls: certificate, key and authority must be PEM and fit together:"
            f" {error.reason or error}"
        ) from error
    return tls


def passwords(face: str, path: str) -> Passwords | None:
    """Returns the passwords of a face's password file. Raises StartError."""
    if not path:
        return None
    try:
        return Passwords(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, PasswordError) as error:
        raise StartError(f"--{face}-password-file {path}: {error}") from error
