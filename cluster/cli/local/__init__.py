"""A cluster of several brokers on this machine, for `cordwood up` and `cordwood down`."""
