"""The report: figures and one HTML page from saved results alone."""
