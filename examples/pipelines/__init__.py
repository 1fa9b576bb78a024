"""Eight Spark pipelines, one technique each. `python -m examples.pipelines.NAME` starts its own broker and data."""
