"""Everything of Treecast that is independent of a client protocol."""
