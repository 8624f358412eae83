"""Stand-in for every server that `placekit serve` starts: it knows the options and requests of the table, no others.

A script on PATH, with the name of the program; the first line of the script starts Python. The environment has
NAMES_OF_PROGRAMS (the table), PIDS (file for the ids of its processes), SENT (file for the requests), FAULT and FAST.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

NAME, WORDS = Path(sys.argv[0]).name, sys.argv[1:]
TABLE = tomllib.loads(Path(os.environ["NAMES_OF_PROGRAMS"]).read_text())
FAULT, IS_OWN = os.environ.get("FAULT", ""), "on" in WORDS
PLANNED_IS_FAST = os.environ.get("FAST") == "planned"
RATE = 10.0 if IS_OWN == PLANNED_IS_FAST else 20.0


def program() -> tuple[dict[str, Any], list[str]]:
    """Return the table of the program that this stands in for, and the words before its options."""
    for names in TABLE.values():
        for command in names.get("commands", ()):
            first, *words = command.split()
            at = next((at for at, word in enumerate(words) if word == "MODEL"), len(words))
            if "requests" in names and first == NAME and WORDS[:at] == words[:at]:
                return names, WORDS[len(words) :]
    sys.exit(f"error: no command of the table begins with {NAME} {' '.join(WORDS)}")


TOLD, OPTIONS = program()
PARSER = argparse.ArgumentParser(allow_abbrev=False)
for option in TOLD["options"]:
    PARSER.add_argument(option, dest=option, action="store_true" if option == "-nkvo" else "store")
ADDRESS = vars(PARSER.parse_args(OPTIONS))


class Handler(BaseHTTPRequestHandler):
    """Answers to the requests of the table; 400 for any other path or key."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def answer(self, values: Any, status: int = 200) -> None:
        """Send JSON values."""
        text = json.dumps(values).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def heard(self, asked: dict[str, Any]) -> bool:
        """Return whether the table has the path and the keys of a request."""
        with Path(os.environ["SENT"]).open("a") as file:
            file.write(json.dumps([self.path, asked]) + "\n")
        wrong = set(asked) - set(TOLD["requests"].get(self.path, ()))
        is_known = self.path in TOLD["requests"] and not wrong
        if not is_known:
            self.answer({"error": f"{self.path} with {sorted(wrong)}"}, 400)
        return is_known

    def do_GET(self) -> None:
        """Answer that the server is healthy."""
        if self.heard({}):
            self.answer({"status": "ok"})

    def do_POST(self) -> None:
        """Answer with the timings of llama-server."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.heard(asked):
            return
        if FAULT == "no timings":
            self.answer({"content": ""})
            return
        rates = {"prompt_per_second": 10 * RATE, "predicted_per_second": RATE}
        counts = {"prompt_n": len(asked["prompt"]), "predicted_n": asked.get("n_predict")}
        self.answer({"timings": {**counts, **rates}})


CHILD = subprocess.Popen(["sleep", "600"])
with Path(os.environ["PIDS"]).open("a") as pids:
    pids.write(f"{os.getpid()} {CHILD.pid}\n")
if FAULT in ("dies", "own dies" if IS_OWN else "plan dies"):
    sys.stdout.write("loading\nerror: no memory left for the cache\nbye\n")
    sys.exit(3)
if FAULT == "hangs":
    time.sleep(600)
HTTPServer((ADDRESS["--host"], int(ADDRESS["--port"])), Handler).serve_forever()
