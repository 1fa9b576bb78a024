"""What came of a run under faults, as one HTML file that needs nothing but itself."""
