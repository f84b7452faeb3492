"""Wheels and source distributions of Treecast, installed and run in empty environments."""
