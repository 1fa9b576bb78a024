"""A guard that is not a clock: what one request costs in things that can be counted, held against a budget."""
