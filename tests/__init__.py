"""Tests, by what they take. A package, as one of this name comes with some libraries."""
