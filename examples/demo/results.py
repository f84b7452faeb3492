"""The demo's results, and their table."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.table import Table


@dataclass
class Results:
    """Results; times in s. `account`: the origin's accounts of records for the other host. `faces`: how often
    an order arrived beside the other host, by face of its publisher, then of the subscriber."""

    sent: int = 0
    acknowledged: int = 0
    refused: int = 0
    producing: float = 0.0
    read_by_first: int = 0
    read_by_second: int = 0
    read_again: int = 0
    taken_over_after: float = 0.0
    back_after: dict[str, float] = field(default_factory=dict)
    acknowledged_at_kill: dict[str, int] = field(default_factory=dict)
    stored: int = 0
    stored_twice: int = 0
    missing_in_log: int = 0
    missing_for_group: int = 0
    wrong_content: int = 0
    different_elsewhere: int = 0
    outstanding: int = 0
    account: dict[str, int] = field(default_factory=dict)
    faces: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        bad = (
            self.refused,
            self.missing_in_log,
            self.missing_for_group,
            self.stored_twice,
            self.wrong_content,
            self.different_elsewhere,
            self.outstanding,
        )
        return self.acknowledged > 0 and not any(bad) and self.once_everywhere

    @property
    def once_everywhere(self) -> bool:
        """Whether the order of each face arrived once at each face."""
        counts = [count for arrived in self.faces.values() for count in arrived.values()]
        return len(counts) == 9 and set(counts) == {1}


def table(results: Results) -> Table:
    shown = Table(title="nothing acknowledged is missing" if results.good else "[red]something is missing")
    shown.add_column("what")
    shown.add_column("records", justify="right")
    shown.add_column("", justify="right")

    def row(what: str, count: int, note: str = "", *, bad: bool = False) -> None:
        style = "" if not bad else "[red]" if count else "[green]"
        shown.add_row(what, f"{style}{count:,}", note)

    row("sent by kafka-python, beside north", results.sent)
    per_second = results.acknowledged / results.producing if results.producing else 0
    row("acknowledged", results.acknowledged, f"{per_second:,.0f}/s, with the restarts")
    for host, count in results.acknowledged_at_kill.items():
        row(f"acknowledged before {host} was killed", count, f"back in {results.back_after[host]:.2f} s")
    row("read beside south by member 1, before it was killed", results.read_by_first)
    row(
        "read beside south by member 2",
        results.read_by_second,
        f"took over after {results.taken_over_after:.1f} s",
    )
    row("read twice, not committed before a kill", results.read_again)
    row("in the log at the end, at both", results.stored)
    if results.account:
        shown.add_section()
        for name, count in results.account.items():
            row(f"to south since north's restart: {name}", count)
        row("outstanding", results.outstanding, bad=True)
    shown.add_section()
    for by, arrived in results.faces.items():
        places = ", ".join(f"{at} {count}" for at, count in arrived.items())
        row(f"the order by {by} beside north, got beside south", sum(arrived.values()), places)
    shown.add_section()
    row("refused", results.refused, bad=True)
    row("acknowledged, not in the log", results.missing_in_log, bad=True)
    row("acknowledged, not read by the group", results.missing_for_group, bad=True)
    row("in the log twice", results.stored_twice, bad=True)
    row("with other content than was sent", results.wrong_content, bad=True)
    row("otherwise at south than at north", results.different_elsewhere, bad=True)
    return shown
