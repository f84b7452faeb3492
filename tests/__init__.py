"""The tests, by kind. This is a package because some libraries install another one named `tests`."""
