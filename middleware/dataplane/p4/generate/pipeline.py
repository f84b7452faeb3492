"""The v1model pipeline as functions: `front` parses, verifies, runs ingress and decides; `back` runs egress
for every copy, computes, deparses and sends. Programs that clone in ingress have a third, `again`, which
parses once more.

Headers and metadata are local variables of each; what egress reads of them goes from `front` to `back` as
arguments. Where egress does the same for every copy, it runs once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import ir
from ..runtime.counts import DROP_EGRESS, DROP_EMPTY_GROUP, DROP_INGRESS, DROP_NO_GROUP, DROP_NO_PORT
from ..runtime.kinds import EGRESS_CLONE, INGRESS_CLONE, NORMAL, RECIRC, REPLICATION, RESUBMIT
from ..runtime.machine import extern_calls
from ..runtime.values import Out
from .order import emits_in_order
from .parsing import Parsing
from .stores import Group, Header, Stack, Store, headers_in, leaf_texts
from .writer import Line, Writer, assigned_names, loaded_names, names_in, shown

# What `back` may be given besides headers and metadata, if it reads it.
FIXED = ("kind", "p", "o", "L", "plen", "port", "now", "us", "cut")
PASSED = "PASSED_E2E_"
# Names in the namespace whose use has effects, or differs from copy to copy.
EFFECTS = ("between", "random_", "digest_", "log_")
AT_EGRESS = ("egress_port", "egress_rid", "instance_type", "egress_spec", "packet_length")
TIMES = ("egress_global_timestamp", "enq_timestamp")


class Pipeline(Parsing):
    """`generate` gives the text; `env` is what it runs in."""

    def generate(self) -> str:
        pipeline, program = self.program.pipeline, self.program
        ingress = program.controls[pipeline.ingress]
        self.headers = self.new_store("h", ingress.parameters[0].type)
        self.user = self.new_store("u", ingress.parameters[1].type)
        self.meta = self.new_store("s", ingress.parameters[2].type)
        self._bind_standard()
        self._bind_blocks()
        self._bind_names()
        self._kept_leaves()
        names = {call.name for call in extern_calls(program)}
        self.cuts = bool(names & {"truncate", "clone", "clone3", "clone_preserving_field_list"})
        back = self._back()
        front = self._front()
        again = self._again() if "q_clone" in self.requests else []
        return "\n".join([*back, "", "", *front, "", "", *again, ""])

    def _bind_standard(self) -> None:
        assert isinstance(self.meta, Group)
        assert isinstance(self.meta.type, ir.StructType)
        pairs = zip(self.meta.type.fields, self.meta.items, strict=True)
        self.standard = {field.name: self.scalar(store) for field, store in pairs}

    def _bind_blocks(self) -> None:
        """All blocks work on the same headers and metadata."""
        pipeline = self.program.pipeline
        blocks: list[ir.Parser | ir.Control] = [self.program.parsers[pipeline.parser]]
        for number in (
            pipeline.verify,
            pipeline.ingress,
            pipeline.egress,
            pipeline.compute,
            pipeline.deparser,
        ):
            blocks.append(self.program.controls[number])
        for block in blocks:
            for parameter, store in zip(block.parameters, (self.headers, self.user, self.meta), strict=False):
                self.stores[parameter.variable] = store

    def _bind_names(self) -> None:
        machine = self.machine
        self.env.update(
            {
                "int_": int.from_bytes,
                "K": machine.counts,
                "Out": Out,
                "ports_": machine.ports,
                "copies_": machine.replication.copies,
                "clones_": machine.replication.clones,
                "length_": machine.replication.packet_length,
                "microseconds_": machine.microseconds,
            }
        )

    # --- what is kept of user metadata

    def _kept_leaves(self) -> None:
        """By variable the field lists that it is in, and its default."""
        self.kept: dict[str, list[int]] = {}
        for number, paths in self.program.field_lists.items():
            for path in paths:
                for text in leaf_texts(self._at_path(path)):
                    self.kept.setdefault(text, []).append(number)
        values = zip(leaf_texts(self.user), leaf_texts(self.default(self.user_type)), strict=True)
        self.fresh_user = dict(values)

    @property
    def user_type(self) -> ir.Type:
        return self.program.controls[self.program.pipeline.ingress].parameters[1].type

    def _at_path(self, path: tuple[str, ...]) -> Store:
        store = self.user
        for name in path:
            assert isinstance(store, Group)
            assert isinstance(store.type, ir.StructType)
            number = next(n for n, field in enumerate(store.type.fields) if field.name == name)
            store = store.items[number]
        return store

    def _kept_text(self, name: str, request: str) -> str:
        """The value that a user metadata variable has for a copy: its own if the field list names it."""
        lists = self.kept.get(name)
        if not lists:
            return self.fresh_user[name]
        value = self._copied_text(name)
        return f"({value} if {request} in {tuple(lists)!r} else {self.fresh_user[name]})"

    def _copied_text(self, name: str) -> str:
        return self.copied(self.stacks[name]) if name in self.stacks else name

    @property
    def stacks(self) -> dict[str, Stack]:
        found = (one for store in (self.headers, self.user) for one in headers_in(store))
        return {one.text: one for one in found if isinstance(one, Stack)}

    def _kept_tuple(self, request: str) -> str:
        return f"({''.join(self._kept_text(name, request) + ', ' for name in self.kept)})"

    def _take_kept(self) -> None:
        if self.kept:
            with self.writer.block("if kept is not None:"):
                self.writer.assign_all(list(self.kept), [f"kept[{n}]" for n in range(len(self.kept))])

    # --- egress and what follows

    def _back(self) -> list[str]:
        self.shares = False
        probe = self._written(self._egress)
        one_by_one = self._differs(probe)
        self.shares = one_by_one and self._may_share(
            self._written(lambda: self._block(self.program.pipeline.egress))
        )
        self.requests = set()
        body = self._written(lambda: self._each_copy(one_by_one))
        loaded = self._choose_passed(body)
        self._restore(body, loaded, one_by_one)
        self._fill_passed(body)
        head = f"def back({', '.join(['targets', 'out', *self.fixed, *self.passed])}):"
        return [head, "    K.egress_passes += len(targets)", *shown(body, loaded)]

    def _choose_passed(self, body: list[Line]) -> set[str]:
        """The parameters of `back`: what its body reads, and what a clone in egress hands on. Gives all names
        that are read."""
        roots = [text for store in (self.headers, self.user, self.meta) for text in leaf_texts(store)]
        given = {self.standard.get(name) for name in (*AT_EGRESS, *TIMES)}
        kept: set[str] = set()
        while True:
            loaded = loaded_names(body, kept)
            self.fixed = [name for name in FIXED if name in loaded]
            self.passed = [name for name in [*roots, "ch"] if name in loaded and name not in given]
            needed = names_in(self._passed_values()) if "q_clone" in self.requests else set()
            if needed <= kept:
                return loaded
            kept |= needed

    def _written(self, write: Callable[[], None]) -> list[Line]:
        """The lines that `write` writes."""
        self.writer = Writer()
        write()
        return self.writer.lines

    def _differs(self, body: list[Line]) -> bool:
        """Whether egress has to run once per copy: it looks at what is different, or has effects."""
        if self.requests or _drops(body):
            return True
        loaded = loaded_names(body, set())
        own = {self.standard.get(name) for name in ("egress_port", "egress_rid")}
        state = any(name[0] in "MRCVX" and name[1:2].isdigit() for name in loaded)
        return bool(own & loaded) or state or not loaded.isdisjoint(EFFECTS)

    def _egress(self) -> None:
        """Egress, compute and deparser of one copy."""
        for name in ("q_clone", "q_recirculate"):
            self.writer.assign(name, "None")
        self.writer.assign("q_cut", "cut")
        self._reset_colors()
        self._enter_egress()
        if self.shares:
            self.writer.line("ch = False")
        self._block(self.program.pipeline.egress)
        self._clone_egress()
        with self.writer.block(f"if {self.standard['egress_spec']} != {self.machine.drop_port}:"):
            self._compute_and_deparse()
            self._leave()
        with self.writer.block("else:"):
            self.writer.line(f"K.drop({DROP_EGRESS!r}, DROPS_)")

    def _compute_and_deparse(self) -> None:
        """Copies in whose headers egress has changed nothing share their bytes."""
        writer = self.writer
        if not self.shares:
            self._block(self.program.pipeline.compute)
            self._deparse()
            return
        with writer.block("if ch or same is None:"):
            writer.line("changed = ch")
            writer.line("ch = ch or ch_0")
            self._block(self.program.pipeline.compute)
            self._deparse()
            writer.line("if not changed: same = data")
        with writer.block("else:"):
            writer.line("data = same")

    def _may_share(self, egress: list[Line]) -> bool:
        """Whether what is computed and emitted follows from the headers that egress leaves, and what it was
        given."""
        after = self._written(self._after_egress)
        loaded = loaded_names(after, set())
        user = set(leaf_texts(self.user)) & assigned_names(egress, loaded_names(egress, loaded))
        random = not loaded.isdisjoint(EFFECTS) or any(
            name[0] in "MRCVX" and name[1:2].isdigit() for name in loaded
        )
        return not (user & loaded) and not random and "q_cut" not in self.requests and not self.stacks

    def _after_egress(self) -> None:
        self._block(self.program.pipeline.compute)
        self._deparse()

    def _each_copy(self, one_by_one: bool) -> None:
        if not one_by_one:
            self.in_loop = False
            self._egress()
        else:
            self.in_loop = True
            with self.writer.block("for eport, erid in targets:"):
                self._caught(self._egress)
        for line in self.writer.lines:
            line.text = line.text.replace("DROPS_", "1" if one_by_one else "len(targets)")

    def _caught(self, write: Callable[[], None]) -> None:
        """Around code that may throw a packet away."""
        before = self.writer.mark()
        with self.writer.block("try:"):
            write()
        if _drops(self.writer.lines[before:]):
            with self.writer.block("except Drop_ as drop:"):
                self.writer.line("K.drop(drop.reason)")
            return
        del self.writer.lines[before]
        for line in self.writer.lines[before:]:
            line.indent -= 1

    def _enter_egress(self) -> None:
        values = {
            "egress_port": "eport",
            "egress_rid": "erid",
            "instance_type": "kind",
            "egress_spec": str((self.machine.drop_port + 1) & 0x1FF),
            "packet_length": f"plen & {0xFFFFFFFF}",
            "egress_global_timestamp": "us",
            "enq_timestamp": f"us & {0xFFFFFFFF}",
        }
        for name, text in values.items():
            if name in self.standard:
                self.writer.assign(self.standard[name], text)
        self.writer.assign("hb", self._valid_bytes())

    def _valid_bytes(self) -> str:
        """Bytes of all headers that are valid."""
        return " + ".join(_bytes_of(one, self.element) for one in headers_in(self.headers)) or "0"

    def _leave(self) -> None:
        writer = self.writer
        if "q_recirculate" in self.requests:
            with writer.block("if q_recirculate is not None:"):
                writer.line("K.recirculations += 1")
                writer.line(f"arrive_((data, port, {RECIRC}, {self._kept_tuple('q_recirculate')}))")
            with writer.block("else:"):
                self._send()
        elif self.in_loop:
            self._send()
        else:
            with writer.block("for eport, erid in targets:"):
                self._send()

    in_loop = False
    cuts = False
    shares = False

    def _send(self) -> None:
        writer = self.writer
        writer.line("c = ports_.get(eport)")
        with writer.block("if c is None:"):
            writer.line(f"K.drop({DROP_NO_PORT!r})")
        with writer.block("else:"):
            writer.line("c.packets_out += 1")
            writer.line("c.bytes_out += len(data)")
            writer.line("out.append(Out(eport, data))")

    def _restore(self, body: list[Line], loaded: set[str], one_by_one: bool) -> None:
        """What a copy changes begins anew for the next."""
        if not one_by_one:
            return
        changed = assigned_names(body, loaded)
        names = [name for name in self.passed if name in changed or name in self.stacks]
        names = [name for name in names if name != "ch" or not self.shares]
        restored = []
        for name in names:
            stack = self.stacks.get(name)
            value = f"{name}_0" if stack is None else self.copied(Stack(f"{name}_0", "", stack.type))
            restored.append(Line(2, f"{name} = {value}", [], []))
        body[1:1] = restored
        body[0:0] = [Line(1, f"{name}_0 = {name}", [], []) for name in names]
        if self.shares:
            body[0:0] = [Line(1, text, [], []) for text in ("ch_0 = ch", "same = None")]

    def _clone_egress(self) -> None:
        """The same headers, fresh metadata, egress again, after the copies that wait already."""
        if "q_clone" not in self.requests:
            return
        writer = self.writer
        with writer.block("if q_clone is not None and clones_.get(q_clone[0]) and clone_works_():"):
            writer.line("K.clones += len(clones_[q_clone[0]])")
            writer.assign("plen_now", f"plen + {self._valid_bytes()} - hb")
            writer.line(f"later_((clones_[q_clone[0]], out, {PASSED}))")

    def _fill_passed(self, body: list[Line]) -> None:
        """The arguments of a clone's run, now that `back`'s parameters are known."""
        for line in body:
            line.text = line.text.replace(PASSED, self._passed_values())

    def _passed_values(self) -> str:
        texts = {"kind": str(EGRESS_CLONE), "plen": "plen_now", "cut": "length_(q_clone[0]) or None"}
        values = [texts.get(name, name) for name in self.fixed]
        return ", ".join([*values, *(self._passed_text(name) for name in self.passed)])

    def _passed_text(self, name: str) -> str:
        if name == "ch" and self.shares:
            return "ch or ch_0"
        if name in self.fresh_user:
            return self._kept_text(name, "q_clone[1]")
        if name in leaf_texts(self.meta):
            return self._fresh_meta().get(name, "0")
        return self._copied_text(name)

    def _fresh_meta(self) -> dict[str, str]:
        """Standard metadata of something that arrives."""
        values = {"ingress_port": "port", "packet_length": "L", "ingress_global_timestamp": "us"}
        return {self.standard[n]: text for n, text in values.items() if n in self.standard}

    # --- deparser

    def _deparse(self) -> None:
        control = self.program.controls[self.program.pipeline.deparser]
        if emits_in_order(self.program):
            with self.writer.block("if ch:"):
                self._build(control)
            with self.writer.block("else:"):
                self.writer.line("data = p")
        else:
            self._build(control)
        if self.cuts:
            self.writer.line("if q_cut is not None: data = data[:q_cut]")

    def _build(self, control: ir.Control) -> None:
        self.writer.line("data = b''")
        self._block(self.program.pipeline.deparser)
        self.writer.line("data += p[o:]")

    def emit(self, s: ir.Emit) -> None:
        for one in headers_in(self.value(s.value)):
            if isinstance(one, Header):
                self._emit_header(one)
                continue
            name = self.temp()
            with self.writer.block(f"for {name} in {one.text}:"):
                for header in headers_in(self.element(name, one.type.element)):
                    assert isinstance(header, Header)
                    self._emit_header(header)

    def _emit_header(self, header: Header) -> None:
        with self.writer.block(f"if {header.valid}:"):
            self.writer.line(f"data += {self.packed(header)}")

    # --- ingress

    def _front(self) -> list[str]:
        self.requests = set()
        body = self._written(lambda: self._caught(self._ingress))
        loaded = loaded_names(body, set())
        head = "def front(p, port, kind, kept, now, out):"
        return [head, "    K.ingress_passes += 1", *shown(body, loaded)]

    def _ingress(self) -> None:
        writer = self.writer
        for name in ("q_clone", "q_resubmit", "q_cut"):
            writer.assign(name, "None")
        self._arrive()
        self._take_kept()
        self._parse_and_verify()
        writer.assign("hb", self._valid_bytes())
        self._reset_colors()
        self._block(self.program.pipeline.ingress)
        if "q_clone" in self.requests:
            self._clone_ingress()
        self._cross()

    def _arrive(self) -> None:
        """Everything as it is for a packet that begins."""
        writer = self.writer
        writer.assign("L", "len(p)")
        writer.assign("us", "microseconds_(now)")
        writer.assign("ch", "False")
        ingress = self.program.controls[self.program.pipeline.ingress]
        for store, parameter in zip((self.headers, self.user, self.meta), ingress.parameters, strict=True):
            for name, value in zip(leaf_texts(store), leaf_texts(self.default(parameter.type)), strict=True):
                writer.assign(name, value)
        writer.assign(self.standard["instance_type"], "kind")
        for name, text in self._fresh_meta().items():
            writer.assign(name, text)

    def _parse_and_verify(self) -> None:
        writer = self.writer
        writer.assign("err", "0")
        writer.assign("stop", "False")
        self.parse(self.program.parsers[self.program.pipeline.parser])
        with writer.block("if err:"):
            writer.line("K.parser_error(err)")
        writer.assign(self.standard["parser_error"], "err")
        writer.assign("checksum_error", "0")
        self._block(self.program.pipeline.verify)
        writer.assign(self.standard["checksum_error"], "checksum_error")

    def _reset_colors(self) -> None:
        for number, one in enumerate(self.program.externs):
            if one.kind == "direct_meter":
                self.writer.assign(f"m{number}", "0")

    def _block(self, number: int) -> None:
        """A top-level control."""
        body = self.program.controls[number].body
        if not self.exits(body):
            self.inline(body)
            return
        with self.writer.block("try:"):
            self.inline(body)
        with self.writer.block("except Exit_:"):
            self.writer.line("pass")

    def _cross(self) -> None:
        """What becomes of the packet after ingress."""
        writer = self.writer
        group, spec = self.standard["mcast_grp"], self.standard["egress_spec"]
        writer.assign("plen", f"L + {self._valid_bytes()} - hb")
        word = "if"
        if "q_resubmit" in self.requests:
            with writer.block("if q_resubmit is not None:"):
                writer.line("K.resubmissions += 1")
                writer.line(f"arrive_((p, port, {RESUBMIT}, {self._kept_tuple('q_resubmit')}))")
            word = "elif"
        with writer.block(f"{word} {group}:"):
            self._multicast(group)
        with writer.block(f"elif {spec} == {self.machine.drop_port}:"):
            writer.line(f"K.drop({DROP_INGRESS!r})")
        with writer.block("else:"):
            self._call_back(f"(({spec}, 0),)", NORMAL)

    def _multicast(self, group: str) -> None:
        writer = self.writer
        writer.line(f"targets = copies_.get({group})")
        with writer.block("if targets:"):
            writer.line("K.replicas += len(targets)")
            self._call_back("targets", REPLICATION)
        with writer.block("else:"):
            writer.line(f"K.drop({DROP_NO_GROUP!r} if targets is None else {DROP_EMPTY_GROUP!r})")

    def _call_back(self, targets: str, kind: int) -> None:
        texts = {"kind": str(kind), "cut": "q_cut" if "q_cut" in self.requests else "None"}
        values = [texts.get(name, name) for name in self.fixed]
        self.writer.line(f"back({', '.join([targets, 'out', *values, *self.passed])})")

    def _clone_ingress(self) -> None:
        with self.writer.block("if q_clone is not None and clones_.get(q_clone[0]):"):
            self.writer.line("K.clones += len(clones_[q_clone[0]])")
            cut = "length_(q_clone[0]) or None"
            kept = self._kept_tuple("q_clone[1]")
            self.writer.line(f"again(p, port, now, clones_[q_clone[0]], {cut}, {kept}, out)")

    def _again(self) -> list[str]:
        """A clone of ingress: parsed once more, then egress."""
        self.requests = {"q_cut"}
        body = self._written(self._clone_in)
        loaded = loaded_names(body, set())
        return ["def again(p, port, now, targets, q_cut, kept, out):", *shown(body, loaded)]

    def _clone_in(self) -> None:
        writer = self.writer
        writer.assign("kind", str(INGRESS_CLONE))
        self._arrive()
        self._parse_and_verify()
        ingress = self.program.controls[self.program.pipeline.ingress]
        for store, parameter in zip((self.user, self.meta), ingress.parameters[1:], strict=True):
            for name, value in zip(leaf_texts(store), leaf_texts(self.default(parameter.type)), strict=True):
                writer.assign(name, value)
        for name, text in self._fresh_meta().items():
            writer.assign(name, text)
        self._take_kept()
        writer.assign("plen", "L")
        self._call_back("targets", INGRESS_CLONE)


def _drops(body: list[Line]) -> bool:
    return any("Drop_" in line.text for line in body)


def _bytes_of(one: Header | Stack, element: Callable[[str, ir.Type], Store]) -> str:
    if isinstance(one, Stack):
        inner = headers_in(element("e", one.type.element))
        return f"sum({' + '.join(_bytes_of(header, element) for header in inner)} for e in {one.text})"
    layout = one.layout
    size = str(layout.size)
    if layout.varbit is not None:
        size = f"({layout.size} + ({one.fields[layout.varbit]}[1] >> 3))"
    return f"({size} if {one.valid} else 0)"
