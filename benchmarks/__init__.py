"""Plain scripts that time sinkwise beside its peers: ``python -m benchmarks.NAME``."""
