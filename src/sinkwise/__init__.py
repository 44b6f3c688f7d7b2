"""sinkwise: attention rows as compositional data."""

__version__ = "0.1.0"
