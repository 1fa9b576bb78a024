"""Attacks on a closed broker by clients that do not belong: fuzzing, and floods of handshakes."""
