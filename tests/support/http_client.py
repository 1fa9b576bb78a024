"""A client of a broker's HTTP API."""

import http.client
import json
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

ANSWER_S = 30.0
JSON, BYTES, EVENTS = "application/json", "application/octet-stream", "text/event-stream"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def lines(self) -> list[Any]:
        """The body's lines, parsed as JSON."""
        return [json.loads(line) for line in self.content.splitlines()]

    def refused(self, status: int, *words: str) -> str:
        """Check for an error response with these words, and return its message."""
        assert self.status == status, self.content
        assert self.json.keys() >= {"error", "code"}
        sentence: str = self.json["error"]
        assert all(word in sentence for word in words), sentence
        assert sentence.endswith("."), sentence
        return sentence


@dataclass(frozen=True, slots=True)
class Event:
    """A server-sent event; `kind` is empty for a record."""

    kind: str
    id: str
    data: Any


class HttpClient:
    """A client of one broker, with a new connection for each request."""

    def __init__(self, address: str) -> None:
        """Take the broker's `address` as HOST:PORT."""
        self.address = address

    def ask(
        self, method: str, path: str, content: bytes | None = None, headers: dict[str, str] | None = None
    ) -> HttpAnswer:
        connection = http.client.HTTPConnection(self.address, timeout=ANSWER_S)
        try:
            connection.request(method, path, content, headers or {})
            response = connection.getresponse()
            return HttpAnswer(response.status, dict(response.headers), response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> HttpAnswer:
        return self.ask("GET", path, None, _named(headers))

    def post(self, path: str, content: Any, **headers: str) -> HttpAnswer:
        """Send `content` as JSON, or unchanged if it is bytes."""
        return self._send("POST", path, content, headers)

    def patch(self, path: str, content: Any, **headers: str) -> HttpAnswer:
        return self._send("PATCH", path, content, headers)

    def delete(self, path: str) -> HttpAnswer:
        return self.ask("DELETE", path)

    def make_topic(self, name: str, **wanted: Any) -> str:
        """Create a topic and return its name."""
        answer = self.post("/v1/topics", {"name": name, **wanted})
        assert answer.status == 201, answer.content
        return name

    def write(self, topic: str, *values: str | None, key: str | None = None, query: str = "", **headers: str) -> Any:
        """Append records, and return their partitions and offsets."""
        answer = self.post(
            f"/v1/topics/{topic}/records?{query}",
            {"records": [{"value": value, "key": key} for value in values]},
            **headers,
        )
        assert answer.status == 200, answer.content
        return answer.json["records"]

    def read(self, topic: str, query: str = "") -> list[Any]:
        """Return all records."""
        answer = self.get(f"/v1/topics/{topic}/records?{query}")
        assert answer.status == 200, answer.content
        return answer.lines

    def values(self, topic: str, query: str = "") -> list[Any]:
        """Return the values of all records."""
        return [record["value"] for record in self.read(topic, query)]

    def follow(self, topic: str, query: str = "", **headers: str) -> "Following":
        """Open a stream of events, which lasts until `close`."""
        return Following(self.address, f"/v1/topics/{topic}/records?{query}", _named(headers))

    def _send(self, method: str, path: str, content: Any, headers: dict[str, str]) -> HttpAnswer:
        if isinstance(content, bytes):
            return self.ask(method, path, content, _named(headers))
        return self.ask(method, path, json.dumps(content).encode(), {"Content-Type": JSON, **_named(headers)})


class Following:
    """An open stream of server-sent events."""

    def __init__(self, address: str, path: str, headers: dict[str, str]) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=ANSWER_S)
        self._connection.request("GET", path, headers={"Accept": EVENTS, **headers})
        self._response = self._connection.getresponse()
        assert self._response.status == 200, self._response.read()
        self._events = self._parsed()

    def __enter__(self) -> "Following":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def next(self) -> Event:
        """Wait for the next event that has data."""
        return next(self._events)

    def take(self, count: int) -> list[Event]:
        return [self.next() for _ in range(count)]

    def values(self, count: int) -> list[Any]:
        """Wait for `count` records and return their values."""
        return [event.data["value"] for event in self.take(count)]

    def comment(self) -> str:
        """Wait for the next comment."""
        while not (line := self._response.readline().decode()).startswith(":"):
            assert line, "the stream has ended"
        return line.strip()

    def _parsed(self) -> Iterator[Event]:
        fields: dict[str, str] = {}
        while line := self._response.readline().decode():
            name, _, content = line.rstrip("\n").partition(": ")
            if name:
                fields[name] = content
            elif "data" in fields:
                yield Event(fields.pop("event", ""), fields.get("id", ""), json.loads(fields.pop("data")))


def quoted(name: str) -> str:
    """Return a name percent-encoded for a path or a query."""
    return urllib.parse.quote(name, safe="")


def _named(headers: dict[str, str]) -> dict[str, str]:
    """Return header names in HTTP form: idempotency_key becomes Idempotency-Key."""
    return {name.replace("_", "-").title(): text for name, text in headers.items()}
