"""The web console at `/`, a page for operators. It uses only the public `/v1/…` API and this broker's pulse."""
