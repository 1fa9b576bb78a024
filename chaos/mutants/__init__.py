"""Cordwood with one rule taken out, again and again: whether the simulator notices."""
