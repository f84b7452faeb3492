"""The content controller: programs P4 switches with what hosts want (docs/fabric.md, `content`)."""
