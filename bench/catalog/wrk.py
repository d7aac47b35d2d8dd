"""GET load by wrk: one thread of C that keeps N connections busy and counts every answer that is not right.

Small answers are checked one by one in wrk (status, length of the body). For large ones that would cost more
than the receiving, so there wrk checks the status, and the bytes received must be those of whole answers.
"""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import orjson

from bench.catalog.client import Answer, WrongAnswer
from tests.harness.components import program

EACH_ANSWER_BYTES_MAX = 100_000

_SCRIPT = """
local threads = {}
function setup(thread) table.insert(threads, thread) end

function init(args)
  status, bytes = tonumber(args[1]), tonumber(args[2])
  wrong = 0
  for i = 3, #args, 2 do wrk.headers[args[i]] = args[i + 1] end
  if bytes < 0 then response = nil end
end

function response(got, headers, body)
  if got ~= status or #body ~= bytes then wrong = wrong + 1 end
end

function done(summary, latency, requests)
  local wrong = 0
  for _, thread in ipairs(threads) do wrong = wrong + thread:get("wrong") end
  local e = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"us":%d,"bytes":%d,"errors":%d,"wrong":%d,"p50_us":%d,"p99_us":%d}\\n',
    summary.requests, summary.duration, summary.bytes,
    e.connect + e.read + e.write + e.status + e.timeout, wrong,
    latency:percentile(50), latency:percentile(99)))
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float


def load(url: str, expected: Answer, *, clients: int, seconds: int, headers: dict[str, str]) -> Load:
    """`expected` is the answer that a single request got and that was looked at."""
    each = len(expected.body) <= EACH_ANSWER_BYTES_MAX
    pairs = [text for pair in {"Accept": "application/json", **headers}.items() for text in pair]
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        Path(script.name).write_text(_SCRIPT)
        command = [str(program("wrk")), "-t1", f"-c{clients}", f"-d{seconds}s", "--timeout", "30s"]
        command += ["-s", script.name, url, "--"]
        command += [str(expected.status), str(len(expected.body) if each else -1), *pairs]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("RESULT ")]
    if ended.returncode != 0 or not lines:
        raise RuntimeError(f"wrk ended with {ended.returncode}: {ended.stdout[-1000:]}{ended.stderr[-1000:]}")
    result = orjson.loads(lines[0].removeprefix("RESULT "))
    _check(result, expected, clients, each)
    return Load(result["requests"], result["us"] / 1e6, result["p50_us"] / 1e3, result["p99_us"] / 1e3)


def _check(result: dict[str, int], expected: Answer, clients: int, each: bool) -> None:
    if result["errors"] or result["wrong"]:
        raise WrongAnswer(
            f"{result['errors']} errors and {result['wrong']} wrong answers under load: {result}"
        )
    least = result["requests"] * expected.size_bytes
    # Answers that were on their way at the end are in `bytes` but not in `requests`.
    most = (result["requests"] + clients) * expected.size_bytes
    if not each and not least * 0.999 <= result["bytes"] <= most * 1.001:
        raise WrongAnswer(
            f"answers of another length under load: {result}, expected {expected.size_bytes} bytes"
        )
