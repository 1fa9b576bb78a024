"""Tiering: a broker's uploads to the archive, its reads from it, and the removal of what retention deletes there."""
