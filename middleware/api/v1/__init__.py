"""Generated from proto/treecast/v1 by proto/generate. Not to be edited."""
