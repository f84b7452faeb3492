"""Spark's source and sink for Treecast."""
