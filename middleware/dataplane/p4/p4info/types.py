"""Types in P4Info's description, and the table of named ones."""

from __future__ import annotations

from finsy.proto import p4t

from .. import ir
from .preambles import annotate

TRANSLATION = "p4runtime_translation"


class TypeTable:
    """Fills `type_info`: a named type is described there the first time it is used."""

    def __init__(self, program: ir.Program, info: p4t.P4TypeInfo) -> None:
        self.info = info
        self._errors = program.errors
        self._new_types = {one.name: one for one in program.new_types}
        self._enums = {one.name: one for one in program.enums}

    def spec(self, type_: ir.Type, named: str | None = None) -> p4t.P4DataTypeSpec:
        """Returns the description of a type, by the name of the new type or enum it was declared with, if
        any.
        """
        if named in self._new_types:
            return self._new_type(self._new_types[named])
        if named in self._enums:
            return self._serializable(self._enums[named])
        if isinstance(type_, (ir.Bits, ir.Varbit)):
            return p4t.P4DataTypeSpec(bitstring=_bitstring(type_))
        if isinstance(type_, ir.Bool):
            return p4t.P4DataTypeSpec(bool=p4t.P4BoolType())
        if isinstance(type_, ir.ErrorCode):
            return self._error()
        if isinstance(type_, ir.Enum):
            return self._enum(type_)
        if isinstance(type_, ir.TupleType):
            members = [self.spec(element) for element in type_.elements]
            return p4t.P4DataTypeSpec(tuple=p4t.P4TupleTypeSpec(members=members))
        if isinstance(type_, ir.StackType):
            return self._stack(type_)
        return self._composite(type_)

    def width(self, type_: ir.Type, named: str | None = None) -> int:
        """Returns the control plane's width of a value: 0 for a string."""
        found = self._new_types.get(named or "")
        translated = found and ir.find(found.annotations, TRANSLATION)
        if translated:
            return _controller_width(translated)
        return ir.width_of(type_)

    def new_type(self, named: str | None) -> str:
        """Returns the name, if it is that of a new type."""
        return named if named in self._new_types and named is not None else ""

    def _new_type(self, new: ir.NewType) -> p4t.P4DataTypeSpec:
        if new.name not in self.info.new_types:
            described = p4t.P4NewTypeSpec()
            annotate(described, new.annotations, without=(TRANSLATION,))
            underlying = self._underlying(new)
            translated = ir.find(new.annotations, TRANSLATION)
            if translated is None:
                described.original_type.CopyFrom(underlying)
            else:
                _translate(described.translated_type, translated)
            self.info.new_types[new.name].CopyFrom(described)
        return p4t.P4DataTypeSpec(new_type=p4t.P4NamedType(name=new.name))

    def _underlying(self, new: ir.NewType) -> p4t.P4DataTypeSpec:
        """Returns the type behind a chain of new types."""
        while new.original_name in self._new_types:
            new = self._new_types[new.original_name]
        return self.spec(new.original, new.original_name)

    def _serializable(self, enum: ir.EnumInfo) -> p4t.P4DataTypeSpec:
        assert enum.representation is not None
        if enum.name not in self.info.serializable_enums:
            described = self.info.serializable_enums[enum.name]
            width = enum.representation.width
            described.underlying_type.bitwidth = width
            for name, value in zip(enum.members, enum.values, strict=True):
                described.members.add(name=name, value=padded(value, width))
        return p4t.P4DataTypeSpec(serializable_enum=p4t.P4NamedType(name=enum.name))

    def _enum(self, enum: ir.Enum) -> p4t.P4DataTypeSpec:
        if enum.name not in self.info.enums:
            described = self.info.enums[enum.name]
            for name in enum.members:
                described.members.add(name=name)
        return p4t.P4DataTypeSpec(enum=p4t.P4NamedType(name=enum.name))

    def _error(self) -> p4t.P4DataTypeSpec:
        if not self.info.HasField("error"):
            self.info.error.members.extend(self._errors)
        return p4t.P4DataTypeSpec(error=p4t.P4ErrorType())

    def _stack(self, stack: ir.StackType) -> p4t.P4DataTypeSpec:
        self.spec(stack.element)
        name = p4t.P4NamedType(name=stack.element.name)
        if isinstance(stack.element, ir.HeaderType):
            spec = p4t.P4HeaderStackTypeSpec(header=name, size=stack.size)
            return p4t.P4DataTypeSpec(header_stack=spec)
        union = p4t.P4HeaderUnionStackTypeSpec(header_union=name, size=stack.size)
        return p4t.P4DataTypeSpec(header_union_stack=union)

    def _composite(self, type_: ir.Type) -> p4t.P4DataTypeSpec:
        if isinstance(type_, ir.StructType):
            if type_.name not in self.info.structs:
                members = [(field.name, self.spec(field.type, field.named)) for field in type_.fields]
                described = self.info.structs[type_.name]
                for name, spec in members:
                    described.members.add(name=name, type_spec=spec)
            return p4t.P4DataTypeSpec(struct=p4t.P4NamedType(name=type_.name))
        if isinstance(type_, ir.HeaderType):
            self._header(type_)
            return p4t.P4DataTypeSpec(header=p4t.P4NamedType(name=type_.name))
        if isinstance(type_, ir.UnionType):
            self._union(type_)
            return p4t.P4DataTypeSpec(header_union=p4t.P4NamedType(name=type_.name))
        raise ValueError(f"control planes have no form for values of type {type_}")

    def _header(self, header: ir.HeaderType) -> None:
        if header.name not in self.info.headers:
            described = self.info.headers[header.name]
            for name, field in flattened(header.fields):
                spec = _bitstring(field.type) if isinstance(field.type, (ir.Bits, ir.Varbit)) else _bit(1)
                described.members.add(name=name, type_spec=spec)

    def _union(self, union: ir.UnionType) -> None:
        if union.name not in self.info.header_unions:
            for field in union.fields:
                self.spec(field.type)
            described = self.info.header_unions[union.name]
            for field in union.fields:
                if isinstance(field.type, ir.HeaderType):
                    described.members.add(name=field.name, header=p4t.P4NamedType(name=field.type.name))


def flattened(fields: tuple[ir.Field, ...], prefix: str = "") -> list[tuple[str, ir.Field]]:
    """Fields with those of structs among them in place; names joined by dots."""
    found: list[tuple[str, ir.Field]] = []
    for field in fields:
        name = prefix + field.name
        if isinstance(field.type, ir.StructType):
            found += flattened(field.type.fields, f"{name}.")
        else:
            found.append((name, field))
    return found


def padded(value: int, width: int) -> bytes:
    """Returns a number in whole bytes of its width: p4c's form inside P4Info, not the canonical one."""
    return (value & ((1 << width) - 1)).to_bytes((width + 7) // 8, "big")


def _bitstring(type_: ir.Bits | ir.Varbit) -> p4t.P4BitstringLikeTypeSpec:
    if isinstance(type_, ir.Varbit):
        return p4t.P4BitstringLikeTypeSpec(varbit=p4t.P4VarbitTypeSpec(max_bitwidth=type_.width))
    if type_.signed:
        return p4t.P4BitstringLikeTypeSpec(int=p4t.P4IntTypeSpec(bitwidth=type_.width))
    return _bit(type_.width)


def _bit(width: int) -> p4t.P4BitstringLikeTypeSpec:
    return p4t.P4BitstringLikeTypeSpec(bit=p4t.P4BitTypeSpec(bitwidth=width))


def _controller_width(annotation: ir.Annotation) -> int:
    """Returns the W of `@p4runtime_translation(uri, W)`, 0 for `(uri, string)`. The checker has evaluated W
    of `bit<W>`.
    """
    given = annotation.arguments[1] if len(annotation.arguments) > 1 else 0
    return 0 if isinstance(given, str) else int(given)


def _translate(message: p4t.P4NewTypeTranslation, annotation: ir.Annotation) -> None:
    message.uri = str(annotation.arguments[0]) if annotation.arguments else ""
    width = _controller_width(annotation)
    if width:
        message.sdn_bitwidth = width
    else:
        message.sdn_string.SetInParent()
