"""The v1model pipeline as functions: `front` parses, verifies, runs ingress and decides; `back` runs egress
for every copy, computes, deparses and sends. Programs that clone in ingress have a third one, `again`, which
parses once more.

Headers and metadata are local variables of each; `front` passes those that egress reads to `back` as
arguments. If egress does the same for every copy, it runs once for all of them.
"""

from __future__ import annotations

from ..runtime.counts import DROP_EMPTY_GROUP, DROP_INGRESS, DROP_NO_GROUP
from ..runtime.machine import INGRESS_CLONE, NORMAL, REPLICATION, RESUBMIT, Machine, extern_calls
from .back import Back
from .base import Draft
from .blocks import Blocks
from .expressions import Expressions
from .externs import Externs
from .packing import Packing
from .parsing import Parsing
from .statements import Statements
from .stores import leaf_texts
from .tables import Tables
from .writer import loaded_names, shown


class Pipeline:
    """A pipeline; `generate` returns the text, `env` is its namespace."""

    def __init__(self, machine: Machine) -> None:
        draft = self._draft = Draft(machine)
        packing = Packing(draft)
        expressions = Expressions(draft, packing)
        statements = Statements(draft, expressions)
        Tables(draft, packing, expressions, statements)
        Externs(draft, packing, expressions, statements)
        self._parsing = Parsing(draft, packing, expressions, statements)
        self._blocks = Blocks(draft, packing, expressions, statements)
        self._back = Back(draft, self._blocks)
        self.env = draft.env

    def generate(self) -> str:
        pipeline, program = self._draft.program.pipeline, self._draft.program
        ingress = program.controls[pipeline.ingress]
        self._blocks.headers = self._draft.new_store("h", ingress.parameters[0].type)
        self._blocks.user = self._draft.new_store("u", ingress.parameters[1].type)
        self._blocks.meta = self._draft.new_store("s", ingress.parameters[2].type)
        self._blocks.bind_standard()
        self._blocks.bind_blocks()
        self._blocks.bind_names()
        self._blocks.kept_leaves()
        names = {call.name for call in extern_calls(program)}
        self._blocks.cuts = bool(names & {"truncate", "clone", "clone3", "clone_preserving_field_list"})
        back = self._back.back()
        front = self._front()
        again = self._again() if "q_clone" in self._draft.requests else []
        return "\n".join([*back, "", "", *front, "", "", *again, ""])

    def _front(self) -> list[str]:
        self._draft.requests = set()
        body = self._blocks.written(lambda: self._blocks.caught(self._ingress))
        loaded = loaded_names(body, set())
        head = "def front(p, port, kind, kept, now, out):"
        return [head, "    K.ingress_passes += 1", *shown(body, loaded)]

    def _ingress(self) -> None:
        writer = self._draft.writer
        for name in ("q_clone", "q_resubmit", "q_cut"):
            writer.assign(name, "None")
        self._arrive()
        self._blocks.take_kept()
        self._parse_and_verify()
        writer.assign("hb", self._blocks.valid_bytes())
        self._blocks.reset_colors()
        self._blocks.block(self._draft.program.pipeline.ingress)
        if "q_clone" in self._draft.requests:
            self._clone_ingress()
        self._cross()

    def _arrive(self) -> None:
        """Writes the initial values for an arriving packet."""
        writer = self._draft.writer
        writer.assign("L", "len(p)")
        writer.assign("us", "microseconds_(now)")
        writer.assign("ch", "False")
        ingress = self._draft.program.controls[self._draft.program.pipeline.ingress]
        for store, parameter in zip(
            (self._blocks.headers, self._blocks.user, self._blocks.meta), ingress.parameters, strict=True
        ):
            for name, value in zip(
                leaf_texts(store), leaf_texts(self._draft.default(parameter.type)), strict=True
            ):
                writer.assign(name, value)
        writer.assign(self._blocks.standard["instance_type"], "kind")
        for name, text in self._blocks.fresh_meta().items():
            writer.assign(name, text)

    def _parse_and_verify(self) -> None:
        writer = self._draft.writer
        writer.assign("err", "0")
        writer.assign("stop", "False")
        self._parsing.parse(self._draft.program.parsers[self._draft.program.pipeline.parser])
        with writer.block("if err:"):
            writer.line("K.parser_error(err)")
        writer.assign(self._blocks.standard["parser_error"], "err")
        writer.assign("checksum_error", "0")
        self._blocks.block(self._draft.program.pipeline.verify)
        writer.assign(self._blocks.standard["checksum_error"], "checksum_error")

    def _cross(self) -> None:
        """Writes the decision about the packet after ingress."""
        writer = self._draft.writer
        group, spec = self._blocks.standard["mcast_grp"], self._blocks.standard["egress_spec"]
        writer.assign("plen", f"L + {self._blocks.valid_bytes()} - hb")
        word = "if"
        if "q_resubmit" in self._draft.requests:
            with writer.block("if q_resubmit is not None:"):
                writer.line("K.resubmissions += 1")
                writer.line(f"arrive_((p, port, {RESUBMIT}, {self._blocks.kept_tuple('q_resubmit')}))")
            word = "elif"
        with writer.block(f"{word} {group}:"):
            self._multicast(group)
        with writer.block(f"elif {spec} == {self._draft.machine.drop_port}:"):
            writer.line(f"K.drop({DROP_INGRESS!r})")
        with writer.block("else:"):
            self._call_back(f"(({spec}, 0),)", NORMAL)

    def _multicast(self, group: str) -> None:
        writer = self._draft.writer
        writer.line(f"targets = copies_.get({group})")
        with writer.block("if targets:"):
            writer.line("K.replicas += len(targets)")
            self._call_back("targets", REPLICATION)
        with writer.block("else:"):
            writer.line(f"K.drop({DROP_NO_GROUP!r} if targets is None else {DROP_EMPTY_GROUP!r})")

    def _call_back(self, targets: str, kind: int) -> None:
        texts = {"kind": str(kind), "cut": "q_cut" if "q_cut" in self._draft.requests else "None"}
        values = [texts.get(name, name) for name in self._back.fixed]
        self._draft.writer.line(f"back({', '.join([targets, 'out', *values, *self._back.passed])})")

    def _clone_ingress(self) -> None:
        with self._draft.writer.block("if q_clone is not None and clones_.get(q_clone[0]):"):
            self._draft.writer.line("K.clones += len(clones_[q_clone[0]])")
            cut = "length_(q_clone[0]) or None"
            kept = self._blocks.kept_tuple("q_clone[1]")
            self._draft.writer.line(f"again(p, port, now, clones_[q_clone[0]], {cut}, {kept}, out)")

    def _again(self) -> list[str]:
        """Writes a clone of ingress: parsed again, then egress."""
        self._draft.requests = {"q_cut"}
        body = self._blocks.written(self._clone_in)
        loaded = loaded_names(body, set())
        return ["def again(p, port, now, targets, q_cut, kept, out):", *shown(body, loaded)]

    def _clone_in(self) -> None:
        writer = self._draft.writer
        writer.assign("kind", str(INGRESS_CLONE))
        self._arrive()
        self._parse_and_verify()
        ingress = self._draft.program.controls[self._draft.program.pipeline.ingress]
        for store, parameter in zip(
            (self._blocks.user, self._blocks.meta), ingress.parameters[1:], strict=True
        ):
            for name, value in zip(
                leaf_texts(store), leaf_texts(self._draft.default(parameter.type)), strict=True
            ):
                writer.assign(name, value)
        for name, text in self._blocks.fresh_meta().items():
            writer.assign(name, text)
        self._blocks.take_kept()
        writer.assign("plen", "L")
        self._call_back("targets", INGRESS_CLONE)
