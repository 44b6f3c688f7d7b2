"""Models to rows: the only layer that imports torch and transformers."""
