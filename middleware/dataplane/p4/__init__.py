"""An embedded P4_16 target for v1model: front end, interpreter, generated code. Pure."""
