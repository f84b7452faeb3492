"""Applications of packet subscriptions, after Camus: each a header description, rules, and packets."""
