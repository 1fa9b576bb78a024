"""The deterministic cluster simulator: real brokers on simulated disks, network and clocks, driven by a seed."""
