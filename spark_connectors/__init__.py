"""Spark's way in and out of Treecast."""
