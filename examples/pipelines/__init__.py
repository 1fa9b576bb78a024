"""Seven pipelines over the log, one idea each; `python -m examples.pipelines.NAME` brings its own broker and data."""
