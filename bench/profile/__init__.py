"""Where a broker's time goes while a line of the benchmark runs: flame graphs, and a table by stage."""
