"""CPU profiles of brokers under a line of the benchmark: flame graphs, and a table by stage."""
