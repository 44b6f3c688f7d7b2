"""The report: figures and one HTML page from saved results alone.

A study's part of the page is one file, ``sections/NAME.py``, whose function ``section(audit)``
returns a :class:`~sinkwise.report.section.Section` (or None where it does not apply), and its
name in ``sections.ORDER``.  Figures that the study draws stand in ``figures/NAME.py``.
"""
