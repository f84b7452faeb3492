"""Load generators behind `treecast bench` and the comparisons in bench/."""
