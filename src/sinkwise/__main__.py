"""``python -m sinkwise``: the same as the ``sinkwise`` command."""

from __future__ import annotations

from sinkwise.cli.app import app

if __name__ == "__main__":
    app(prog_name="sinkwise")
