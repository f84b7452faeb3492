"""Ways to put one segment on the wire to many hosts."""
