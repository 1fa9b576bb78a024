"""Configuration: keys, values, sources and layers of broker settings and topic configs."""
