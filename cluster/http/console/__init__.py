"""The console at `/`: a page that an operator keeps open. It asks the same `/v1/…` that everybody may ask."""
