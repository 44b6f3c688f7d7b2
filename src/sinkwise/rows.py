from sinkwise.rowdata.block import *  # noqa
from sinkwise.rowdata.block import make_block  # noqa
