"""`python -m cordwood.cluster.cli` is the same as `cordwood`."""

from cordwood.cluster.cli import main

main()
