"""Attention rows as the rest of the library sees them, whatever produced them."""

from sinkwise.rowdata.block import HeadId, KeyLabels, RowBlock, RowSource, make_block

__all__ = ["HeadId", "KeyLabels", "RowBlock", "RowSource", "make_block"]
