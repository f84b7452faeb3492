"""STARE's face: VNFs of this host, and the clients that they use (`connect`, `Vnf`)."""

from __future__ import annotations

from .client import AsyncVnf, ConnectionLost, StareError, Update, Vnf, connect
from .codec import Code

__all__ = ["AsyncVnf", "Code", "ConnectionLost", "StareError", "Update", "Vnf", "connect"]
