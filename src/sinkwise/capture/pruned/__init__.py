"""Models with heads taken out: the modules they are made of, and how they are loaded again."""
