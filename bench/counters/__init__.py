"""Budgets of countable costs of a request, as a regression guard that does not depend on a clock."""
