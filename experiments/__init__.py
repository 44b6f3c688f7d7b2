"""Small models trained here, seeded, on a CPU: witnesses whose training data and recipe are known."""
