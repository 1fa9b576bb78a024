"""The report of a run under faults: one self-contained HTML file."""
