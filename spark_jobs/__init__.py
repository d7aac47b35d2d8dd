"""The Spark worker and Spark sessions for a Calve server. This package uses HTTP only: it imports no other
part of Calve.

A batch, from top to bottom: `worker` (command line) starts Spark by `driver` and `session`; `lease_loop`
leases jobs with `server_client`; `landing` writes the files of a batch in Spark tasks and publishes them.

- `messages`, `progress`: the job as the server describes it, the work of a task, and how far a job is.
- `tables`: files, key files, deletes and commits of Iceberg tables.
- `landing`: one batch. `landing_job` runs in the driver, `task` on an executor; `fold` is pure.
- `rewrite`: a mirror written anew, from its changes table or with other column types.
- `verification`: a mirror compared with the fold of its changes.
- `maintenance`: compaction, manifests, the archive of old changes.
- `jars`, `java`, `download`: what Spark needs on this machine. `daemon`: Python workers that start quickly.
"""
