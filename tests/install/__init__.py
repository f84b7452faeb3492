"""Wheels and source distributions of Treecast, installed and run in environments that were empty."""
