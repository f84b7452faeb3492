"""A program as written to `ir.Program`: names, types, constants, generics, instances. Pure."""
