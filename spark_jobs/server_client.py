"""The HTTP client of a worker: jobs, and the open transactions of a MERGE.

Connection errors and 5xx responses are retried for a while, because every call here may be repeated. A 409 on
a lease raises `LostLease`: stop working on the job. Another 409 on publishing raises `TableChanged`: a table
has changed, and the job must start again with the new state.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx
from tenacity import Retrying, retry_if_exception, stop_before_delay, wait_random_exponential

from spark_jobs.messages import BadJob, Job, job_from

CALL_TIMEOUT_S = 30.0
HEARTBEAT_TIMEOUT_S = 5.0
RETRY_S_MAX = 20.0  # all attempts of one call together
TRANSACTION_TTL_S = 3600
LOST_LEASE = "LostLeaseException"
_TOKEN_MARGIN_S = 60.0

TableChange = dict[str, Any]  # an element of `table-changes` in the REST specification


class ServerError(Exception):
    """The server refused or could not be reached."""

    def __init__(self, message: str, status: int | None = None, kind: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind  # the type of the error, as the server names it


class CredentialRefused(ServerError):
    """The server knows no principal with this credential, or requires a credential and got none."""


class LostLease(ServerError):
    """The job has been leased to another worker, or has ended."""


class TableChanged(ServerError):
    """A table has changed meanwhile. If `is_certain` is set, nothing was published, and nothing will be."""

    is_certain = True


class Credentials:
    """A fixed token, or a principal's name and secret with which tokens are fetched."""

    def __init__(self, token: str | None = None, credential: str | None = None) -> None:
        self.token = token
        self.credential = credential
        self._fetched = ("", 0.0)
        self._lock = threading.Lock()

    @property
    def is_given(self) -> bool:
        return self.token is not None or self.credential is not None

    def headers(self, http: httpx.Client) -> dict[str, str]:
        token = self.token if self.credential is None else self._current(http)
        return {} if token is None else {"authorization": f"Bearer {token}"}

    def forget(self) -> None:
        with self._lock:
            self._fetched = ("", 0.0)

    def _current(self, http: httpx.Client) -> str:
        with self._lock:
            token, until_s = self._fetched
            if time.monotonic() < until_s - _TOKEN_MARGIN_S:
                return token
            name, _, secret = str(self.credential).partition(":")
            form = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret}
            answer = http.post("/v1/oauth/tokens", data={**form, "scope": "catalog"})
            if answer.status_code != 200:
                message = _error(answer).get("message", answer.text[:300])
                raise ServerError(f"no token for {name}: {message}", answer.status_code)
            given = answer.json()
            lasts_s = float(given.get("expires_in") or 3600)
            self._fetched = (str(given["access_token"]), time.monotonic() + max(lasts_s, 2 * _TOKEN_MARGIN_S))
            return self._fetched[0]


class Server:
    """Sends requests to the server. Thread-safe."""

    def __init__(
        self,
        uri: str,
        credentials: Credentials | None = None,
        *,
        retry_s_max: float = RETRY_S_MAX,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.uri = uri.rstrip("/")
        self.credentials = credentials or Credentials()
        self._http = httpx.Client(base_url=self.uri, timeout=CALL_TIMEOUT_S)
        self._retry_s_max = retry_s_max
        self._sleep = sleep

    def close(self) -> None:
        self._http.close()

    def check_credential(self) -> None:
        """Raise CredentialRefused if the server refuses the credential. A server that cannot be reached may
        come back.
        """
        try:
            self._once("GET", "/v1/config?warehouse=main", timeout_s=HEARTBEAT_TIMEOUT_S)
        except ServerError as error:
            if error.status == 401:
                given = (
                    "the credential of this worker" if self.credentials.is_given else "a worker without one"
                )
                raise CredentialRefused(
                    f"the server refuses {given}: set CALVE_WORKER_CREDENTIAL=NAME:SECRET to a principal "
                    f"that has the role writer; `calve principal create` makes one ({error})",
                    401,
                ) from error

    # -- jobs

    def lease(self, worker: str, slot: int, wait_s: float, about: Mapping[str, Any]) -> Any | None:
        """Return the next job as JSON, or None. Not retried: the caller repeats it anyway."""
        body = {"worker": worker, "slot": slot, "wait-s": wait_s, "about": dict(about)}
        answer = self._once("POST", "/lake/v1/jobs/lease", body, timeout_s=wait_s + CALL_TIMEOUT_S)
        return answer.json() if answer.status_code == 200 else None

    def heartbeat(self, job: Job, progress: Mapping[str, Any]) -> None:
        """Extend a lease. Not retried: the next one is due soon."""
        try:
            body = {"epoch": job.epoch, "progress": progress}
            self._once("POST", f"{_path(job)}/heartbeat", body, timeout_s=HEARTBEAT_TIMEOUT_S)
        except ServerError as error:
            raise _lost(error) from error

    def renewed(self, job: Job) -> Job:
        """Return the job with its tables as they are now. BadJob if it no longer fits them."""
        try:
            body = {"epoch": job.epoch, "progress": {"stage": "again"}, "tables": True}
            answer = self._call("POST", f"{_path(job)}/heartbeat", body)
        except ServerError as error:
            if error.status == 409 and error.kind != LOST_LEASE:
                raise BadJob(str(error)) from error
            raise _lost(error) from error
        given = job.model_dump(by_alias=True, exclude={"tables"})
        return job_from({**given, "tables": answer.json()["tables"]})

    def publish(
        self,
        job: Job,
        changes: Sequence[TableChange],
        metrics: Mapping[str, Any],
        *,
        transaction: str | None = None,
    ) -> int | None:
        """Make the batch visible: the given changes, or those of an open transaction. Returns the number.

        LostLease: nothing is published under this epoch, now or later. TableChanged: a table has changed, and
        this request published nothing.
        """
        work = {"table-changes": list(changes)} if transaction is None else {"transaction": transaction}
        retrying = self._retrying()
        try:
            body = {"epoch": job.epoch, **work, "metrics": dict(metrics)}
            answer = retrying(self._once, "POST", f"{_path(job)}/publish", body)
        except ServerError as error:
            if error.status != 409 or error.kind == LOST_LEASE:
                raise _lost(error) from error
            changed = TableChanged(str(error), 409)
            # An earlier request whose response was lost may still be running.
            changed.is_certain = retrying.statistics["attempt_number"] == 1
            raise changed from error
        number: int | None = answer.json()["number"]
        return number

    def fail(self, job_id: str, epoch: int, error: str, *, retry: bool) -> None:
        body = {"epoch": epoch, "error": error, "retry": retry}
        try:
            self._call("POST", f"/lake/v1/jobs/{_segment(job_id)}/fail", body)
        except ServerError as refused:
            raise _lost(refused) from refused

    def complete(self, job: Job, facts: Mapping[str, Any]) -> None:
        """End a job that lands no batch, with its result."""
        try:
            self._call("POST", f"{_path(job)}/complete", {"epoch": job.epoch, "facts": dict(facts)})
        except ServerError as error:
            raise _lost(error) from error

    # -- transactions and the catalog

    def open_transaction(self, warehouse: str, name: str) -> str:
        """Open a transaction and return the prefix of its routes. A transaction of this name that an earlier
        run left is aborted.
        """
        path = f"/lake/v1/{_segment(warehouse)}/transactions"
        body = {"name": name, "ttl-s": TRANSACTION_TTL_S}
        try:
            self._call("POST", path, body)
        except ServerError as error:
            if error.status != 409:
                raise
            self.abort_transaction(warehouse, name)
            self._call("POST", path, body)
        return _segment(f"{warehouse}~{name}")

    def extend_transaction(self, warehouse: str, name: str) -> None:
        path = f"/lake/v1/{_segment(warehouse)}/transactions/{name}/extend"
        self._call("POST", path, {"ttl-s": TRANSACTION_TTL_S})

    def abort_transaction(self, warehouse: str, name: str) -> bool:
        """Abort a transaction. Returns whether it was open until now; then none of its changes became
        visible.
        """
        try:
            self._call("DELETE", f"/lake/v1/{_segment(warehouse)}/transactions/{name}")
        except ServerError as error:
            if error.status not in (404, 409):
                raise
            return False
        return True

    def commit(self, prefix: str, changes: Sequence[TableChange]) -> None:
        """Commit to several tables at once, inside an open transaction."""
        try:
            self._call("POST", f"/v1/{prefix}/transactions/commit", {"table-changes": list(changes)})
        except ServerError as error:
            raise (TableChanged(str(error), 409) if error.status == 409 else error) from error

    def load_table(self, prefix: str, namespace: tuple[str, ...], name: str) -> dict[str, Any]:
        """Return the metadata of a table, with only its current snapshot."""
        levels = "%1F".join(_segment(level) for level in namespace)
        path = f"/v1/{quote(prefix, safe='%')}/namespaces/{levels}/tables/{_segment(name)}?snapshots=refs"
        metadata: dict[str, Any] = self._call("GET", path).json()["metadata"]
        return metadata

    def config(self, warehouse: str) -> dict[str, str]:
        """Return the catalog properties of a warehouse, such as the address of its object store."""
        given = self._call("GET", f"/v1/config?warehouse={_segment(warehouse)}").json()
        return {**given.get("defaults", {}), **given.get("overrides", {})}

    # -- calls

    def _call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return self._retrying()(self._once, method, path, body)

    def _retrying(self) -> Retrying:
        """Return a retry policy for temporary failures, with growing, random pauses."""
        return Retrying(
            retry=retry_if_exception(self._is_temporary),
            wait=wait_random_exponential(multiplier=0.2, max=3.0),
            stop=stop_before_delay(self._retry_s_max),
            sleep=self._sleep,
            reraise=True,
        )

    def _is_temporary(self, error: BaseException) -> bool:
        if not isinstance(error, ServerError):
            return False
        # the token expired early; with a credential, the next attempt fetches another
        if error.status == 401:
            return self.credentials.credential is not None
        return error.status is None or error.status >= 500 or error.status == 429

    def _once(
        self, method: str, path: str, body: Any = None, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> httpx.Response:
        try:
            answer = self._http.request(
                method, path, json=body, headers=self.credentials.headers(self._http), timeout=timeout_s
            )
        except httpx.HTTPError as error:
            raise ServerError(f"{method} {path}: {type(error).__name__} {error}") from error
        if answer.status_code == 401:
            self.credentials.forget()
        if not answer.is_success:
            refusal = _error(answer)
            text = f"{method} {path}: {answer.status_code} {refusal.get('message', answer.text[:300])}"
            raise ServerError(text, answer.status_code, refusal.get("type"))
        return answer


def _path(job: Job) -> str:
    return f"/lake/v1/jobs/{_segment(job.id)}"


def _segment(text: str) -> str:
    return quote(text, safe="")


def _lost(error: ServerError) -> ServerError:
    """Return whether the lease is lost. 404: the job has ended and its row was deleted."""
    if error.status not in (404, 409):
        return error
    return LostLease(str(error), error.status, error.kind)


def _error(answer: httpx.Response) -> dict[str, Any]:
    try:
        found = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {"message": str(found)}
