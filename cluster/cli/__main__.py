"""Entry point of `python -m cordwood.cluster.cli`, the same as `cordwood`."""

from cordwood.cluster.cli import main

main()
