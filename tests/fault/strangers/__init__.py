"""`make strangers`: clients without a secret, and users with few rights, beside a pair of each face."""
