"""STARE's face: VNFs of this host, and their clients (`connect`, `Vnf`)."""

from __future__ import annotations

from .client import AsyncVnf, ConnectionLost, StareError, Update, Vnf, connect
from .codec import Code

__all__ = ["AsyncVnf", "Code", "ConnectionLost", "StareError", "Update", "Vnf", "connect"]
