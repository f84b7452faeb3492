"""Examples that run: `python -m examples.demo` and so on."""
