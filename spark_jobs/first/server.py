"""The server as a worker sees it: jobs, open transactions, and the calls that prepare tables. HTTP only."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

from spark_jobs.first.job import Job, Request

ATTEMPTS_MAX = 6
TOKEN_MARGIN_S = 60.0
TRANSACTION_TTL_S = 3600


class ServerGone(Exception):
    """The server does not answer, or fails again and again."""


class LostLease(Exception):
    """Another worker has the job now: stop and forget it."""


class Moved(Exception):
    """A table was written by somebody else meanwhile: the batch must be done again on what it is now."""


class Refused(Exception):
    """The server does not accept a call; to repeat it would change nothing."""


class Server:
    """From any thread. `credential` is `id:secret`, `token` a fixed bearer token; neither where none is asked."""

    def __init__(self, uri: str, *, token: str | None = None, credential: str | None = None) -> None:
        self.uri = uri.rstrip("/")
        self.credential = credential
        self._token = token
        self._token_ends_s = float("inf") if token else 0.0
        self._client = httpx.Client(base_url=self.uri, timeout=httpx.Timeout(60, connect=5))

    def bearer(self) -> str | None:
        """The token of the moment; None where none is asked for."""
        self._authorization()
        return self._token

    def close(self) -> None:
        self._client.close()

    # -- jobs

    def lease(self, worker: str, slot: int, wait_s: float, about: Mapping[str, Any]) -> Job | None:
        body = {"worker": worker, "slot": slot, "wait-s": wait_s, "about": about}
        answer = self._call("POST", "/lake/v1/jobs/lease", body, attempts_max=1)
        return Job.of(answer.json()) if answer.status_code == 200 else None

    def keep(self, job: Job, progress: Mapping[str, Any]) -> None:
        body = {"epoch": job.epoch, "progress": progress}
        if self._call("POST", f"/lake/v1/jobs/{job.id}/heartbeat", body).status_code == 409:
            raise LostLease(job.id)

    def publish(self, job: Job, transaction: str, metrics: Mapping[str, Any]) -> int | None:
        """The number that the batch became visible under. Safe to repeat, so a lost answer is asked for again."""
        body = {"epoch": job.epoch, "transaction": transaction, "metrics": metrics}
        answer = self._call("POST", f"/lake/v1/jobs/{job.id}/publish", body)
        if answer.status_code == 409:
            message = _message(answer)
            raise LostLease(message) if "epoch" in message else Moved(message)
        number: int | None = _ok(answer).json()["number"]
        return number

    def fail(self, job: Job, error: str) -> None:
        body = {"epoch": job.epoch, "error": error[:4000], "retry": True}
        self._call("POST", f"/lake/v1/jobs/{job.id}/fail", body)

    # -- transactions

    def open(self, warehouse: str, name: str) -> None:
        """An empty transaction of this name; what an earlier job left behind is aborted."""
        self.abort(warehouse, name)
        body = {"name": name, "ttl-s": TRANSACTION_TTL_S}
        _ok(self._call("POST", f"/lake/v1/{quote(warehouse, safe='')}/transactions", body))

    def abort(self, warehouse: str, name: str) -> None:
        """Fine if there is none, or if it is over."""
        path = f"/lake/v1/{quote(warehouse, safe='')}/transactions/{quote(name, safe='')}"
        answer = self._call("DELETE", path, None)
        if answer.status_code not in (204, 404, 409):
            _ok(answer)

    def prepare(self, warehouse: str, transaction: str, request: Request) -> None:
        """A call of the job. A namespace that exists already is fine; a table that does has moved."""
        prefix = quote(f"{warehouse}~{transaction}", safe="")
        path = str(request["path"]).replace("{prefix}", prefix)
        path = path.replace("{warehouse}", quote(warehouse, safe=""))
        answer = self._call(str(request["method"]), path, request["body"])
        if answer.status_code == 409:
            if path.endswith("/namespaces"):
                return
            raise Moved(_message(answer))
        _ok(answer)

    def table(
        self, warehouse: str, transaction: str, namespace: tuple[str, ...], name: str
    ) -> dict[str, Any]:
        """The metadata of a table as the transaction has it."""
        prefix = quote(f"{warehouse}~{transaction}", safe="")
        space = "%1F".join(quote(level, safe="") for level in namespace)
        path = f"/v1/{prefix}/namespaces/{space}/tables/{quote(name, safe='')}?snapshots=refs"
        found: dict[str, Any] = _ok(self._call("GET", path, None)).json()["metadata"]
        return found

    # -- calls

    def _call(self, method: str, path: str, body: Any, *, attempts_max: int = ATTEMPTS_MAX) -> httpx.Response:
        """The answer, whatever it says short of a failure of the server; those are tried again."""
        reason = ""
        for attempt in range(attempts_max):
            if attempt:
                time.sleep(min(5.0, 0.2 * 2**attempt))
            try:
                answer = self._client.request(method, path, json=body, headers=self._authorization())
            except httpx.HTTPError as error:
                reason = f"{type(error).__name__}: {error}"
                continue
            if answer.status_code == 401 and self.credential:
                self._token_ends_s = 0.0
            elif answer.status_code < 500:
                return answer
            reason = f"{answer.status_code}: {_message(answer)}"
        raise ServerGone(f"{method} {path}: {reason}")

    def _authorization(self) -> dict[str, str]:
        if self.credential and time.monotonic() > self._token_ends_s - TOKEN_MARGIN_S:
            name, _, secret = self.credential.partition(":")
            form = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret}
            answer = self._client.post("/v1/oauth/tokens", data=form)
            given = _ok(answer).json()
            self._token = given["access_token"]
            self._token_ends_s = time.monotonic() + float(given.get("expires_in", 3600))
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}


def _ok(answer: httpx.Response) -> httpx.Response:
    if answer.is_success:
        return answer
    raise Refused(
        f"{answer.request.method} {answer.request.url.path}: {answer.status_code} {_message(answer)}"
    )


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:300]
