"""Act on heads: switch them off, exchange their patterns, remove them; models only."""
