"""The files of a secured host, in `trust` of its data directory. All have mode 0600.

  authority.crt                 the cluster's authority
  host.crt, host.key            this host
  keys                          the keys of segments and who is expelled, as last heard (`trust_calls.Keys`)
  address                       the control address of the coordinator: for `treecast token` and `hosts`, and
                                where a controller renews its certificate

and where the coordinator is:

  authority.key, ledger.json    see `control.trust.authority`
  administrator.crt, .key       the one who may make tokens and expel hosts
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = "trust"
AUTHORITY: Final = "authority.crt"
AUTHORITY_KEY: Final = "authority.key"
HOST_CERTIFICATE: Final = "host.crt"
HOST_KEY: Final = "host.key"
ADMINISTRATOR_CERTIFICATE: Final = "administrator.crt"
ADMINISTRATOR_KEY: Final = "administrator.key"
KEYS: Final = "keys"
ADDRESS: Final = "address"


def is_secured(data: Path) -> bool:
    """Whether the data directory is of a secured host."""
    return (data / FOLDER / HOST_CERTIFICATE).exists()


def make_folder(data: Path) -> Path:
    """Returns the folder in a data directory, made if there is none, for its owner only. Raises OSError."""
    folder = data / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder
