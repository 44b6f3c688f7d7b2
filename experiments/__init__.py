"""Small models trained here, seeded, on a CPU: witnesses whose data and recipe are known."""
