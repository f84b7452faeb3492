"""The checker: a parsed program to `ir.Program` (names, types, constants, generics, instances). Pure."""
