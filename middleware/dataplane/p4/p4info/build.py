"""P4Info from a checked program, as p4c's control-plane generator builds it for v1model."""

from __future__ import annotations

from collections.abc import Iterable

from finsy.proto import p4i
from google.protobuf import text_format

from .. import ir
from ..ir.annotations import written_name
from ..source import Diagnostic, P4Error, Span
from .calls import called_actions, digest_calls
from .ids import IdError, Kind, Symbols, number_fields
from .preambles import annotate, document, fill, id_of
from .types import TypeTable, flattened, padded

DEFAULT_SIZE = 1024
_COUNTED = {
    "bytes": p4i.CounterSpec.BYTES,
    "packets": p4i.CounterSpec.PACKETS,
    "packets_and_bytes": p4i.CounterSpec.BOTH,
}
_METERED = {"bytes": p4i.MeterSpec.BYTES, "packets": p4i.MeterSpec.PACKETS}
_EXTERNS = {
    "counter": Kind.COUNTER,
    "direct_counter": Kind.DIRECT_COUNTER,
    "meter": Kind.METER,
    "direct_meter": Kind.DIRECT_METER,
    "register": Kind.REGISTER,
    "action_profile": Kind.ACTION_PROFILE,
    "action_selector": Kind.ACTION_PROFILE,
}
_SELECTOR = ("max_group_size", "selector_size_semantics", "max_member_weight")
_MATCH_TYPES = {
    ir.MatchKind.EXACT: p4i.MatchField.EXACT,
    ir.MatchKind.LPM: p4i.MatchField.LPM,
    ir.MatchKind.TERNARY: p4i.MatchField.TERNARY,
    ir.MatchKind.RANGE: p4i.MatchField.RANGE,
    ir.MatchKind.OPTIONAL: p4i.MatchField.OPTIONAL,
}
_PACKAGE = ("name", "version", "organization", "contact", "url", "arch")
_PLATFORM = (
    "multicast_group_table_size",
    "multicast_group_table_total_replicas",
    "multicast_group_table_max_replicas_per_entry",
)


def build_p4info(program: ir.Program) -> p4i.P4Info:
    """Returns the whole message. Raises P4Error if identifiers in the program contradict each other."""
    return _Builder(program).build()


class _Builder:
    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.info = p4i.P4Info()
        self.types = TypeTable(program, self.info.type_info)
        self.symbols = Symbols()
        self.digests = digest_calls(program)
        self._called: set[str] = set()
        self.headers = [h for h in program.headers if ir.find(h.annotations, "controller_header")]

    def build(self) -> p4i.P4Info:
        self._collect()
        self.symbols.assign()
        self._package()
        for table in self.program.tables:
            if not table.hidden:
                self._table(table)
        for action in self._actions():
            if not action.hidden:
                self._action(action)
        for number, extern in enumerate(self.program.externs):
            self._extern(number, extern)
        for header in self.headers:
            self._controller_header(header)
        for value_set in self.program.value_sets:
            self._value_set(value_set)
        for digest in self.digests:
            message = self.info.digests.add(type_spec=self.types.spec(digest.type))
            self._fill(message.preamble, Kind.DIGEST, digest.name, ())
        if not self.info.type_info.ListFields():
            self.info.ClearField("type_info")
        return self.info

    # --- symbols

    def _collect(self) -> None:
        for action in self._actions():
            self._symbol(Kind.ACTION, action.name, action.annotations, action.span)
        for table in self.program.tables:
            self._symbol(Kind.TABLE, table.name, table.annotations, table.span)
        for extern in self.program.externs:
            if extern.kind in _EXTERNS:
                self._symbol(_EXTERNS[extern.kind], extern.name, extern.annotations, extern.span)
        for value_set in self.program.value_sets:
            self._symbol(Kind.VALUE_SET, value_set.name, value_set.annotations, value_set.span)
        for header in self.headers:
            self._symbol(Kind.CONTROLLER_HEADER, header.name, header.annotations, header.span)
        for digest in self.digests:
            self.symbols.add(Kind.DIGEST, digest.name)

    def _symbol(self, kind: Kind, name: str, annotations: tuple[ir.Annotation, ...], span: Span) -> None:
        try:
            self.symbols.add(kind, name, id_of(annotations))
        except IdError as error:
            raise self._refusal(str(error), span) from error

    def _refusal(self, message: str, span: Span) -> P4Error:
        return P4Error([Diagnostic(span, message)], self.program.lines)

    def _actions(self) -> list[ir.Action]:
        """Returns the actions that something runs, each name once; those of tables first, as only they have
        data.
        """
        in_tables = {reference.action for table in self.program.tables for reference in table.actions}
        called = called_actions(self.program) - in_tables
        actions = [self.program.actions[number] for number in (*sorted(in_tables), *sorted(called))]
        self._called = {self.program.actions[number].name for number in called}
        self._called -= {self.program.actions[number].name for number in in_tables}
        return list({action.name: action for action in reversed(actions)}.values())[::-1]

    def _fill(
        self,
        preamble: p4i.Preamble,
        kind: Kind,
        name: str,
        annotations: tuple[ir.Annotation, ...],
        without: Iterable[str] = (),
    ) -> None:
        fill(
            preamble,
            self.symbols.id(kind, name),
            name,
            self.symbols.alias(name),
            annotations,
            without=without,
        )

    def _numbers(self, annotated: Iterable[tuple[ir.Annotation, ...]], span: Span) -> list[int]:
        try:
            return number_fields([id_of(annotations) for annotations in annotated])
        except IdError as error:
            raise self._refusal(str(error), span) from error

    # --- tables and actions

    def _table(self, table: ir.Table) -> None:
        message = self.info.tables.add(size=table.size or DEFAULT_SIZE)
        self._fill(message.preamble, Kind.TABLE, table.name, table.annotations)
        numbers = self._numbers([key.annotations for key in table.keys], table.span)
        for number, key in zip(numbers, table.keys, strict=True):
            if key.match_kind is not ir.MatchKind.SELECTOR:
                self._key(message, number, key)
        for reference in table.actions:
            self._reference(message, reference)
        self._default(message, table)
        self._resources(message, table)
        message.is_const_table = table.constant_entries
        message.has_initial_entries = bool(table.entries)
        if table.support_timeout:
            message.idle_timeout_behavior = p4i.Table.NOTIFY_CONTROL

    def _key(self, table: p4i.Table, number: int, key: ir.Key) -> None:
        field = table.match_fields.add(
            id=number,
            name=key.name,
            bitwidth=self.types.width(key.type, key.named),
            match_type=_MATCH_TYPES[key.match_kind],
        )
        annotate(field, key.annotations)
        _document(field, key.annotations)
        self.types.spec(key.type, key.named)
        if self.types.new_type(key.named):
            field.type_name.name = key.named or ""

    def _reference(self, table: p4i.Table, reference: ir.TableAction) -> None:
        action = self.program.actions[reference.action]
        message = table.action_refs.add(id=self.symbols.id(Kind.ACTION, action.name))
        annotate(message, reference.annotations)
        if reference.table_only:
            message.scope = p4i.ActionRef.TABLE_ONLY
        elif reference.default_only:
            message.scope = p4i.ActionRef.DEFAULT_ONLY

    def _default(self, message: p4i.Table, table: ir.Table) -> None:
        action = self.program.actions[table.actions[table.default.action].action]
        number = self.symbols.id(Kind.ACTION, action.name)
        if table.default_constant:
            message.const_default_action_id = number
        message.initial_default_action.action_id = number
        numbers = self._numbers([one.annotations for one in action.data], action.span)
        for param, parameter, value in zip(numbers, action.data, table.default.values, strict=True):
            width = max(ir.width_of(parameter.type), 1)
            message.initial_default_action.arguments.add(param_id=param, value=padded(int(value), width))

    def _resources(self, message: p4i.Table, table: ir.Table) -> None:
        if table.implementation is not None:
            name = self.program.externs[table.implementation].name
            message.implementation_id = self.symbols.id(Kind.ACTION_PROFILE, name)
        for number in (table.counters, table.meters):
            if number is not None:
                extern = self.program.externs[number]
                message.direct_resource_ids.append(self.symbols.id(_EXTERNS[extern.kind], extern.name))

    def _action(self, action: ir.Action) -> None:
        message = self.info.actions.add()
        self._fill(message.preamble, Kind.ACTION, action.name, action.annotations)
        data = () if action.name in self._called else action.data
        numbers = self._numbers([one.annotations for one in data], action.span)
        for number, parameter in zip(numbers, data, strict=True):
            param = message.params.add(id=number, name=written_name(parameter.name, parameter.annotations))
            annotate(param, parameter.annotations)
            _document(param, parameter.annotations)
            self.types.spec(parameter.type, parameter.named)
            if isinstance(parameter.type, ir.Enum):
                param.type_name.name = parameter.type.name
                continue
            param.bitwidth = self.types.width(parameter.type, parameter.named)
            if self.types.new_type(parameter.named):
                param.type_name.name = parameter.named or ""

    # --- extern objects

    def _extern(self, number: int, extern: ir.ExternInstance) -> None:
        if extern.kind == "counter":
            counter = self.info.counters.add(size=_size(extern))
            counter.spec.unit = _COUNTED[str(extern.argument("type"))]
            self._fill(counter.preamble, Kind.COUNTER, extern.name, extern.annotations)
        elif extern.kind == "meter":
            meter = self.info.meters.add(size=_size(extern))
            meter.spec.unit = _METERED[str(extern.argument("type"))]
            self._fill(meter.preamble, Kind.METER, extern.name, extern.annotations)
        elif extern.kind == "register":
            spec = self.types.spec(extern.type_arguments[0], extern.named)
            register = self.info.registers.add(size=_size(extern), type_spec=spec)
            self._fill(register.preamble, Kind.REGISTER, extern.name, extern.annotations)
        elif extern.kind in ("action_profile", "action_selector"):
            self._profile(number, extern)
        else:
            self._direct(number, extern)

    def _direct(self, number: int, extern: ir.ExternInstance) -> None:
        """Adds a direct counter or meter of a table; one without a table is invisible."""
        for table in self.program.tables:
            if table.hidden or number not in (table.counters, table.meters):
                continue
            table_id = self.symbols.id(Kind.TABLE, table.name)
            if extern.kind == "direct_counter":
                counter = self.info.direct_counters.add(direct_table_id=table_id)
                counter.spec.unit = _COUNTED[str(extern.argument("type"))]
                self._fill(counter.preamble, Kind.DIRECT_COUNTER, extern.name, extern.annotations)
            else:
                meter = self.info.direct_meters.add(direct_table_id=table_id)
                meter.spec.unit = _METERED[str(extern.argument("type"))]
                self._fill(meter.preamble, Kind.DIRECT_METER, extern.name, extern.annotations)

    def _profile(self, number: int, extern: ir.ExternInstance) -> None:
        profile = self.info.action_profiles.add(
            size=_size(extern), with_selector=extern.kind == "action_selector"
        )
        self._fill(profile.preamble, Kind.ACTION_PROFILE, extern.name, extern.annotations, _SELECTOR)
        names = sorted(table.name for table in self.program.tables if table.implementation == number)
        profile.table_ids.extend(self.symbols.id(Kind.TABLE, name) for name in names)
        if profile.with_selector:
            _selector_sizes(profile, extern.annotations)

    # --- the rest

    def _controller_header(self, header: ir.HeaderType) -> None:
        name = str(_argument(header.annotations, "controller_header", header.name))
        message = self.info.controller_packet_metadata.add()
        number = self.symbols.id(Kind.CONTROLLER_HEADER, header.name)
        fill(message.preamble, number, name, name, header.annotations)
        fields = flattened(header.fields)
        numbers = self._numbers([field.annotations for _, field in fields], header.span)
        for number, (field_name, field) in zip(numbers, fields, strict=True):
            if ir.find(field.annotations, "hidden"):
                continue
            metadata = message.metadata.add(
                id=number,
                name=written_name(field_name, field.annotations),
                bitwidth=self.types.width(field.type, field.named),
            )
            annotate(metadata, field.annotations)
            self.types.spec(field.type, field.named)
            if self.types.new_type(field.named):
                metadata.type_name.name = field.named or ""

    def _value_set(self, value_set: ir.ValueSet) -> None:
        message = self.info.value_sets.add(size=value_set.size)
        self._fill(message.preamble, Kind.VALUE_SET, value_set.name, value_set.annotations)
        numbers = self._numbers([field.annotations for field in value_set.fields], value_set.span)
        for number, field in zip(numbers, value_set.fields, strict=True):
            match = message.match.add(
                id=number,
                name=field.name,
                bitwidth=self.types.width(field.type, field.named),
                match_type=_MATCH_TYPES[field.match_kind],
            )
            annotate(match, field.annotations, without=("match",))
            _document(match, field.annotations)

    def _package(self) -> None:
        package, annotations = self.info.pkg_info, self.program.annotations
        package.arch = "v1model"
        for one in annotations:
            for key, value in one.named:
                if one.name == "pkginfo" and key in _PACKAGE:
                    setattr(package, key, str(value))
                elif one.name == "platform_property" and key in _PLATFORM:
                    setattr(package.platform_properties, key, int(value))
        annotate(package, annotations, without=("pkginfo", "platform_property"))
        doc = p4i.Documentation()
        if document(doc, annotations):
            package.doc.CopyFrom(doc)


def _document(message: p4i.MatchField | p4i.Action.Param, annotations: tuple[ir.Annotation, ...]) -> None:
    doc = p4i.Documentation()
    if document(doc, annotations):
        message.doc.CopyFrom(doc)


def _argument(annotations: tuple[ir.Annotation, ...], name: str, otherwise: ir.Scalar) -> ir.Scalar:
    """Returns the first argument of an annotation."""
    found = ir.find(annotations, name)
    return found.arguments[0] if found is not None and found.arguments else otherwise


def _size(extern: ir.ExternInstance) -> int:
    return int(extern.argument("size"))


def _selector_sizes(profile: p4i.ActionProfile, annotations: tuple[ir.Annotation, ...]) -> None:
    profile.max_group_size = int(_argument(annotations, "max_group_size", 0))
    semantics = str(_argument(annotations, "selector_size_semantics", "")).lower()
    if semantics == "sum_of_weights":
        profile.sum_of_weights.SetInParent()
    elif semantics == "sum_of_members":
        weight = int(_argument(annotations, "max_member_weight", 0))
        profile.sum_of_members.CopyFrom(p4i.ActionProfile.SumOfMembers(max_member_weight=weight))


# --- its text form, as p4c writes `X.p4info.txtpb`

_HEAD = "# proto-file: p4/config/v1/p4info.proto\n# proto-message: p4.config.v1.P4Info\n\n"


def to_text(info: p4i.P4Info) -> str:
    return _HEAD + text_format.MessageToString(info)


def parse_text(text: str) -> p4i.P4Info:
    """Parses P4Info text. Raises ValueError for invalid text."""
    try:
        return text_format.Parse(text, p4i.P4Info())
    except text_format.ParseError as error:
        raise ValueError(str(error)) from error
