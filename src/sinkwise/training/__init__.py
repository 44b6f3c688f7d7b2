"""Watch a model while it trains, and hold its content entropy up."""
