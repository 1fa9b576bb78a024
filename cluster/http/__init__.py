"""HTTP: the API `/v1/…`, health checks, metrics and the web console. Loaded only if `http.listen` is set."""
