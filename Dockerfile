# One broker. compose.yaml runs three; docs/deploy.md describes their configuration.
FROM python:3.11-slim-bookworm AS build
WORKDIR /source
RUN python3 -m venv /pip && python3 -m venv --without-pip /usr/local/cordwood
# The dependencies come first, so that a change of the source alone does not fetch them again.
COPY pyproject.toml ./
RUN python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
      > requirements.txt && \
    /pip/bin/pip --python /usr/local/cordwood/bin/python install --no-cache-dir --requirement requirements.txt
COPY . ./
RUN /pip/bin/pip --python /usr/local/cordwood/bin/python install --no-cache-dir --no-deps .

FROM python:3.11-slim-bookworm
RUN useradd --system --user-group --no-create-home --uid 999 cordwood && \
    install --directory --owner cordwood --group cordwood /var/lib/cordwood && \
    printf '%s\n' \
      'log.dirs = "/var/lib/cordwood"' \
      'listeners = "PLAINTEXT://0.0.0.0:9092"' \
      'advertised.listeners = "PLAINTEXT://localhost:9092"' \
      'http.listen = "0.0.0.0:8080"' \
      > /etc/cordwood.toml
COPY --from=build /usr/local/cordwood /usr/local/cordwood
ENV PATH=/usr/local/cordwood/bin:$PATH CORDWOOD_CONFIG=/etc/cordwood.toml
USER cordwood
WORKDIR /var/lib/cordwood
VOLUME /var/lib/cordwood
EXPOSE 9092 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=10s --start-period=60s --retries=3 CMD ["cordwood", "ready"]
ENTRYPOINT ["cordwood", "serve"]
