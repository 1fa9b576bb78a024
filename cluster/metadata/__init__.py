"""What the cluster has agreed on: commands, the image they make, and the journal that keeps them."""
