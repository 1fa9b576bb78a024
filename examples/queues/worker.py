"""A worker: it takes records of topics from a queue, and needs only HTTP. Run as many as there is work for.

`python examples/queues/worker.py TOPIC…`; QUEUE_URL names the queue.
"""

import json
import logging
import os
import sys
import time
import urllib.error
import urllib.request
from typing import Any

QUEUE = os.environ.get("QUEUE_URL", "http://127.0.0.1:8080/v1/queues/workers")
TOPICS = sys.argv[1:] or sys.exit("usage: worker.py TOPIC…")
logging.basicConfig(level=logging.INFO, format="%(message)s")


def call(action: str, **body: Any) -> Any:
    content, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{QUEUE}/{action}", content, headers)) as response:
            return json.load(response)
    except urllib.error.HTTPError as refused:
        logging.warning("%s: %s", action, refused.read().decode())
    except OSError as lost:  # The broker is away: a record whose acknowledgement is lost is delivered again.
        logging.warning("%s: %s", action, lost)
    time.sleep(1)
    return {"records": []}


while True:
    for record in call("take", topics=TOPICS, max_records=10, wait_ms=20_000)["records"]:
        try:
            logging.info("%s", record["value"])  # Work on the record here.
        except Exception:
            logging.exception("%s is delivered again", record["offset"])
            call("release", receipts=[record["receipt"]])
        else:
            call("acknowledge", receipts=[record["receipt"]])
