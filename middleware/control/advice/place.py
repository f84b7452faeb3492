"""The source of advice in a description, and the file of what must outlive the manager."""

from __future__ import annotations

from pathlib import Path

import msgspec

from treecast.middleware.storage.whole_file import write_whole

from .rules import KeptAdvice, Limits


class AdvicePlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The source of advice. If `kafka` is empty, there is none."""

    kafka: str = ""
    network: str = "network"
    every: float = 5.0
    dry_run: bool = False
    rule_writes: int = 1000
    missing: float = 0.5

    def limits(self) -> Limits:
        return Limits(rule_writes=self.rule_writes, missing=self.missing, dry_run=self.dry_run)


class AdviceFile:
    """A store of `KeptAdvice` in JSON. `load` raises ValueError for a foreign file, since an epoch might then
    be applied twice.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> KeptAdvice:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=KeptAdvice)
        except FileNotFoundError:
            return KeptAdvice()
        except msgspec.DecodeError as error:
            raise ValueError(f"{self._path} says nothing about advice: {error}; restore it") from error

    def save(self, kept: KeptAdvice) -> None:
        write_whole(self._path, msgspec.json.encode(kept))
