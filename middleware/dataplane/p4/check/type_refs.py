"""Resolution of written types. Pure."""

from __future__ import annotations

from .. import ast, ir, types
from ..source import Span
from .base import Place
from .constants import MOST_BITS
from .scope import ParameterType, TypeEntity

_PLAIN: dict[str, types.Type] = {
    "bool": types.BOOL,
    "int": types.INT,
    "string": types.STRING,
    "error": types.ERROR,
    "void": types.VOID,
    "match_kind": types.MatchKindType(),
}


class TypeRefs:
    """The part of the checker that resolves types."""

    def __init__(self, at: Place) -> None:
        self._at = at

    def type_of(self, node: ast.TypeRef) -> types.Type:
        """Returns the resolved type."""
        match node:
            case ast.PlainType(kind="_"):
                self._at.fail(node.span, "a type must stand here, not '_'")
            case ast.PlainType(kind=kind):
                return _PLAIN[kind]
            case ast.SizedType():
                return self._sized(node)
            case ast.TypeName():
                return self._named(node)
            case ast.Specialized(base=base, arguments=arguments):
                return self._specialized(base, arguments, node.span)
            case ast.TupleRef(elements=elements):
                return types.Tuple(tuple(map(self.element_type, elements)))
            case ast.ListRef(element=element):
                return types.ListType(self.type_of(element))
            case ast.ArrayRef():
                return self._array(node)

    def element_type(self, node: ast.TypeRef) -> types.Type:
        """Returns a type that has values at run time."""
        found = self.type_of(node)
        if isinstance(found, ir.Void | types.ExternType | types.Applicable | types.PackageType):
            self._at.fail(node.span, f"{types.describe(found)} can't be part of another type")
        return found

    def _sized(self, node: ast.SizedType) -> types.Type:
        width = self._at.integer(node.width, "a width")
        least = 1 if node.kind == "int" else 0
        if not least <= width <= MOST_BITS:
            self._at.fail(node.width.span, f"a width of {width} is not possible")
        if node.kind == "varbit":
            return ir.Varbit(width)
        return ir.Bits(width, node.kind == "int")

    def _entity(self, node: ast.TypeName) -> TypeEntity:
        found = self._at.lookup(node.name, node.absolute, node.span)
        if not isinstance(found, TypeEntity):
            self._at.fail(node.span, f"'{node.name}' is not a type")
        return found

    def _named(self, node: ast.TypeName) -> types.Type:
        found = self._entity(node)
        if found.type is None:
            self._at.fail(node.span, f"'{node.name}' needs {_count(found.parameters, 'type argument')}")
        return found.type

    def _specialized(self, base: ast.TypeName, arguments: tuple[ast.TypeRef, ...], span: Span) -> types.Type:
        found = self._entity(base)
        if found.generic is None:
            self._at.fail(span, f"'{base.name}' takes no type arguments")
        if found.parameters != len(arguments):
            wants = _count(found.parameters, "type argument")
            self._at.fail(span, f"'{base.name}' takes {wants}, not {len(arguments)}")
        return found.generic(tuple(self._argument(one) for one in arguments), span)

    def _argument(self, node: ast.TypeRef) -> types.Type:
        if isinstance(node, ast.PlainType) and node.kind == "_":
            return types.TypeVariable("_")
        return self.type_of(node)

    def _array(self, node: ast.ArrayRef) -> types.Type:
        element = self.type_of(node.element)
        if not isinstance(element, types.Record) or element.kind == "struct":
            self._at.fail(
                node.span,
                f"only headers and header unions make stacks; {types.describe(element)} is neither",
            )
        size = self._at.integer(node.size, "the size of a stack")
        if not 1 <= size <= 1 << 16:
            self._at.fail(node.size.span, f"a stack of {size} elements is not possible")
        return types.Stack(element, size)

    def type_variables(self, names: tuple[str, ...], span: Span) -> tuple[types.TypeVariable, ...]:
        """Declares type parameters in the present scope."""
        found = tuple(types.TypeVariable(name) for name in names)
        for variable in found:
            self._at.declare(variable.name, TypeEntity(variable, None, 0, span, 0), span)
        return found

    def parameters(self, declared: tuple[ast.Parameter, ...]) -> tuple[ParameterType, ...]:
        """Returns the parameters of something callable, their types resolved in the present scope."""
        found = []
        names: set[str] = set()
        for one in declared:
            if one.name in names:
                self._at.fail(one.span, f"there are two parameters '{one.name}'")
            names.add(one.name)
            type_ = self.type_of(one.type)
            if isinstance(type_, ir.Void):
                self._at.fail(one.span, f"parameter '{one.name}' can't be void")
            if one.default is not None and one.direction not in ("", "in"):
                self._at.fail(one.span, f"an {one.direction} parameter can't have a default value")
            if one.direction and isinstance(type_, types.Infinite | ir.String):
                of = types.describe(type_)
                self._at.fail(one.span, f"parameter '{one.name}' of type {of} can't have a direction")
            if one.direction and isinstance(type_, types.ExternType | types.Applicable | types.PackageType):
                of = types.describe(type_)
                self._at.fail(one.span, f"parameter '{one.name}' of type {of} can't have a direction")
            optional = any(mark.name == "optional" for mark in one.annotations)
            found.append(ParameterType(one.name, one.direction, type_, one.default, one, optional))
        return tuple(found)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
