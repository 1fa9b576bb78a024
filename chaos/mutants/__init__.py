"""Mutation testing of Cordwood: source copies with one rule taken out, and the tests or seeds that must fail."""
