"""The function `back`: egress for every copy of a packet, checksums, the deparser, and output."""

from __future__ import annotations

from ..runtime.counts import DROP_EGRESS, DROP_NO_PORT
from ..runtime.machine import EGRESS_CLONE, RECIRC
from .base import Draft
from .blocks import Blocks, drops
from .stores import Stack, leaf_texts
from .writer import Line, assigned_names, loaded_names, names_in, shown

# Parameters of `back`, beside headers and metadata, that it gets if it reads them.
FIXED = ("kind", "p", "o", "L", "plen", "port", "now", "us", "cut")
PASSED = "PASSED_E2E_"
# Names in the namespace whose use has effects, or differs between copies.
EFFECTS = ("between", "random_", "digest_", "log_")
AT_EGRESS = ("egress_port", "egress_rid", "instance_type", "egress_spec", "packet_length")
TIMES = ("egress_global_timestamp", "enq_timestamp")


class Back:
    """`fixed` and `passed` are the parameters of `back`: what its body reads."""

    def __init__(self, draft: Draft, blocks: Blocks) -> None:
        self._draft = draft
        self._blocks = blocks

    def back(self) -> list[str]:
        self.shares = False
        probe = self._blocks.written(self._egress)
        one_by_one = self._differs(probe)
        self.shares = one_by_one and self._may_share(
            self._blocks.written(lambda: self._blocks.block(self._draft.program.pipeline.egress))
        )
        self._draft.requests = set()
        body = self._blocks.written(lambda: self._each_copy(one_by_one))
        loaded = self._choose_passed(body)
        self._restore(body, loaded, one_by_one)
        self._fill_passed(body)
        head = f"def back({', '.join(['targets', 'out', *self.fixed, *self.passed])}):"
        return [head, "    K.egress_passes += len(targets)", *shown(body, loaded)]

    def _choose_passed(self, body: list[Line]) -> set[str]:
        """Chooses the parameters of `back`: what its body reads, and what a clone in egress passes on.
        Returns all names read.
        """
        roots = [
            text
            for store in (self._blocks.headers, self._blocks.user, self._blocks.meta)
            for text in leaf_texts(store)
        ]
        given = {self._blocks.standard.get(name) for name in (*AT_EGRESS, *TIMES)}
        kept: set[str] = set()
        while True:
            loaded = loaded_names(body, kept)
            self.fixed = [name for name in FIXED if name in loaded]
            self.passed = [name for name in [*roots, "ch"] if name in loaded and name not in given]
            needed = names_in(self._passed_values()) if "q_clone" in self._draft.requests else set()
            if needed <= kept:
                return loaded
            kept |= needed

    def _differs(self, body: list[Line]) -> bool:
        """Returns whether egress must run once per copy, because it reads what differs or has effects."""
        if self._draft.requests or drops(body):
            return True
        loaded = loaded_names(body, set())
        own = {self._blocks.standard.get(name) for name in ("egress_port", "egress_rid")}
        state = any(name[0] in "MRCVX" and name[1:2].isdigit() for name in loaded)
        return bool(own & loaded) or state or not loaded.isdisjoint(EFFECTS)

    def _egress(self) -> None:
        """Egress, compute and deparser of one copy."""
        for name in ("q_clone", "q_recirculate"):
            self._draft.writer.assign(name, "None")
        self._draft.writer.assign("q_cut", "cut")
        self._blocks.reset_colors()
        self._enter_egress()
        if self.shares:
            self._draft.writer.line("ch = False")
        self._blocks.block(self._draft.program.pipeline.egress)
        self._clone_egress()
        with self._draft.writer.block(
            f"if {self._blocks.standard['egress_spec']} != {self._draft.machine.drop_port}:"
        ):
            self._compute_and_deparse()
            self._leave()
        with self._draft.writer.block("else:"):
            self._draft.writer.line(f"K.drop({DROP_EGRESS!r}, DROPS_)")

    def _compute_and_deparse(self) -> None:
        """Writes deparsing; copies whose headers egress has not changed share their bytes."""
        writer = self._draft.writer
        if not self.shares:
            self._blocks.block(self._draft.program.pipeline.compute)
            self._blocks.deparse()
            return
        with writer.block("if ch or same is None:"):
            writer.line("changed = ch")
            writer.line("ch = ch or ch_0")
            self._blocks.block(self._draft.program.pipeline.compute)
            self._blocks.deparse()
            writer.line("if not changed: same = data")
        with writer.block("else:"):
            writer.line("data = same")

    def _may_share(self, egress: list[Line]) -> bool:
        """Returns whether everything computed and emitted depends only on the headers after egress, and on
        its inputs.
        """
        after = self._blocks.written(self._after_egress)
        loaded = loaded_names(after, set())
        user = set(leaf_texts(self._blocks.user)) & assigned_names(egress, loaded_names(egress, loaded))
        random = not loaded.isdisjoint(EFFECTS) or any(
            name[0] in "MRCVX" and name[1:2].isdigit() for name in loaded
        )
        return (
            not (user & loaded)
            and not random
            and "q_cut" not in self._draft.requests
            and not self._blocks.stacks
        )

    def _after_egress(self) -> None:
        self._blocks.block(self._draft.program.pipeline.compute)
        self._blocks.deparse()

    def _each_copy(self, one_by_one: bool) -> None:
        if not one_by_one:
            self.in_loop = False
            self._egress()
        else:
            self.in_loop = True
            with self._draft.writer.block("for eport, erid in targets:"):
                self._blocks.caught(self._egress)
        for line in self._draft.writer.lines:
            line.text = line.text.replace("DROPS_", "1" if one_by_one else "len(targets)")

    def _enter_egress(self) -> None:
        values = {
            "egress_port": "eport",
            "egress_rid": "erid",
            "instance_type": "kind",
            "egress_spec": str((self._draft.machine.drop_port + 1) & 0x1FF),
            "packet_length": f"plen & {0xFFFFFFFF}",
            "egress_global_timestamp": "us",
            "enq_timestamp": f"us & {0xFFFFFFFF}",
        }
        for name, text in values.items():
            if name in self._blocks.standard:
                self._draft.writer.assign(self._blocks.standard[name], text)
        self._draft.writer.assign("hb", self._blocks.valid_bytes())

    def _leave(self) -> None:
        writer = self._draft.writer
        if "q_recirculate" in self._draft.requests:
            with writer.block("if q_recirculate is not None:"):
                writer.line("K.recirculations += 1")
                writer.line(f"arrive_((data, port, {RECIRC}, {self._blocks.kept_tuple('q_recirculate')}))")
            with writer.block("else:"):
                self._send()
        elif self.in_loop:
            self._send()
        else:
            with writer.block("for eport, erid in targets:"):
                self._send()

    in_loop = False
    shares = False

    def _send(self) -> None:
        writer = self._draft.writer
        writer.line("c = ports_.get(eport)")
        with writer.block("if c is None:"):
            writer.line(f"K.drop({DROP_NO_PORT!r})")
        with writer.block("else:"):
            writer.line("c.packets_out += 1")
            writer.line("c.bytes_out += len(data)")
            writer.line("out.append(Out(eport, data))")

    def _restore(self, body: list[Line], loaded: set[str], one_by_one: bool) -> None:
        """Restores, for the next copy, what a copy changes."""
        if not one_by_one:
            return
        changed = assigned_names(body, loaded)
        names = [name for name in self.passed if name in changed or name in self._blocks.stacks]
        names = [name for name in names if name != "ch" or not self.shares]
        restored = []
        for name in names:
            stack = self._blocks.stacks.get(name)
            value = f"{name}_0" if stack is None else self._draft.copied(Stack(f"{name}_0", "", stack.type))
            restored.append(Line(2, f"{name} = {value}", [], []))
        body[1:1] = restored
        body[0:0] = [Line(1, f"{name}_0 = {name}", [], []) for name in names]
        if self.shares:
            body[0:0] = [Line(1, text, [], []) for text in ("ch_0 = ch", "same = None")]

    def _clone_egress(self) -> None:
        """Writes a clone of egress: same headers, fresh metadata, egress again, after copies that wait
        already.
        """
        if "q_clone" not in self._draft.requests:
            return
        writer = self._draft.writer
        with writer.block("if q_clone is not None and clones_.get(q_clone[0]) and clone_works_():"):
            writer.line("K.clones += len(clones_[q_clone[0]])")
            writer.assign("plen_now", f"plen + {self._blocks.valid_bytes()} - hb")
            writer.line(f"later_((clones_[q_clone[0]], out, {PASSED}))")

    def _fill_passed(self, body: list[Line]) -> None:
        """Fills in the arguments of a clone's run, once `back`'s parameters are known."""
        for line in body:
            if PASSED in line.text:
                line.text = line.text.replace(PASSED, self._passed_values())

    def _passed_values(self) -> str:
        texts = {"kind": str(EGRESS_CLONE), "plen": "plen_now", "cut": "length_(q_clone[0]) or None"}
        values = [texts.get(name, name) for name in self.fixed]
        return ", ".join([*values, *(self._passed_text(name) for name in self.passed)])

    def _passed_text(self, name: str) -> str:
        if name == "ch" and self.shares:
            return "ch or ch_0"
        if name in self._blocks.fresh_user:
            return self._blocks.kept_text(name, "q_clone[1]")
        if name in leaf_texts(self._blocks.meta):
            return self._blocks.fresh_meta().get(name, "0")
        return self._blocks.copied_text(name)
