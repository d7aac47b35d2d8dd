"""The settings of the tables that changes land in, over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from catalog.api.dependencies import ReaderWarehouse, TableDep, WriterWarehouse
from catalog.errors import Invalid
from ingest.api.rebuild import MirrorState, RebuildsOf
from ingest.landing.history_view import HistoryViews
from ingest.landing.status import LandingStatus
from ingest.settings import (
    AfterReject,
    Deletes,
    KeepChecksums,
    MirrorChanged,
    Mode,
    Policy,
    TableSettings,
    Truncate,
    TypeChanges,
)
from ingest.store.tables import LandingTables

router = APIRouter(prefix="/lake/v1", tags=["Changes"])


class SettingsFields(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    mode: Mode = "mirror+changes"
    key: list[str] | None = Field(
        None, description="Key columns; if left out, those of the table or the producer"
    )
    policy: Policy = Field("evolve", description="How to handle columns that the table does not have")
    after_reject: AfterReject = Field(
        "pass",
        alias="after-reject",
        description="How to handle later changes of a key whose change was rejected",
    )
    truncate: Truncate = Field(
        "apply", description="A truncate empties the mirror, is ignored, or holds the table until this is set"
    )
    deletes: Deletes = Field(
        "hard", description="soft: a deleted row stays in the mirror, with `_is_deleted` true"
    )
    mirror_changed: MirrorChanged = Field(
        "pause",
        alias="mirror-changed",
        description="If others rolled the mirror back, emptied or dropped it: pause landing, or continue",
    )
    type_changes: TypeChanges | None = Field(
        None,
        alias="type-changes",
        description="If the type of a column changes, and Iceberg cannot widen it: convert all its values, "
        "add a column for the new type, or reject values that do not fit. Null: as the rules of its source "
        "say, else convert",
    )
    partition: list[str] = Field([], description="Of the mirror: days(x), months(x), bucket(16, x), x")
    changes_partition: list[str] | None = Field(None, alias="changes-partition")
    format_version: int = Field(2, alias="format-version", ge=2, le=3)
    checksums: KeepChecksums | None = Field(
        None,
        description="Each batch brings checksums of the mirror up to date, or only a verification computes "
        "them. Null: as the server's setting says",
    )
    history_view: bool = Field(
        False,
        alias="history-view",
        description="Keep the view `<table>__history`: the versions of rows, with `_valid_from`, `_valid_to`",
    )
    names: dict[str, str] = Field({}, description="Names of the columns that Calve adds")
    properties: dict[str, str] = Field({}, description="Table properties at creation")


class SettingsBody(SettingsFields):
    state: dict[str, Any] | None = Field(None, exclude=True, description="As in the response of GET; ignored")


class SettingsAnswer(SettingsFields):
    state: MirrorState = Field(
        default_factory=lambda: MirrorState.model_validate({}), description="The key in use, and rebuilds"
    )


def _tables(request: Request) -> LandingTables:
    tables: LandingTables = request.app.state.ingest.tables
    return tables


def _view(request: Request) -> LandingStatus:
    view: LandingStatus = request.app.state.ingest.landing_status
    return view


def _history_views(request: Request) -> HistoryViews:
    views: HistoryViews = request.app.state.ingest.history_views
    return views


HistoryViewsOf = Annotated[HistoryViews, Depends(_history_views)]
TablesOf = Annotated[LandingTables, Depends(_tables)]
ViewOf = Annotated[LandingStatus, Depends(_view)]
_PATH = "/{warehouse}/namespaces/{namespace}/tables/{table}/ingest"


@router.get(_PATH, operation_id="loadIngestSettings", response_model=SettingsAnswer)
def load_settings(
    tables: TablesOf, rebuilds: RebuildsOf, warehouse: ReaderWarehouse, identifier: TableDep
) -> Any:
    """Load how changes of this table are handled, the key of its mirror with the reason, and its rebuilds."""
    table = identifier.parts
    settings = tables.one(warehouse, table).settings.as_json()
    return settings | {"state": rebuilds.state(warehouse, table)}


@router.put(
    _PATH,
    operation_id="setIngestSettings",
    response_model=SettingsFields,
    responses={
        409: {
            "description": "The mirror would have to be rebuilt, and cannot be; or the name of the history "
            "view is taken, and the settings are set."
        }
    },
)
def set_settings(
    tables: TablesOf,
    rebuilds: RebuildsOf,
    view: ViewOf,
    history_views: HistoryViewsOf,
    warehouse: WriterWarehouse,
    identifier: TableDep,
    body: SettingsBody,
) -> Any:
    """Set how changes of this table are handled, from the next batch on; the table need not exist yet. 400 if
    a setting cannot work, such as a partition by a column that the table does not have.

    With another key, or with a mode that adds a mirror, the mirror is rebuilt from its changes table; 409 if
    that is not possible.
    """
    settings = TableSettings.of(body.model_dump(exclude_unset=True))
    table = identifier.parts
    _check(settings, view.explain_table(warehouse, table)["schema"])
    had_view = tables.one(warehouse, table).settings.history_view
    rebuilds.set_settings(warehouse, table, settings)
    if settings.history_view or had_view:
        history_views.keep(warehouse, tables.one(warehouse, table))
    return settings.as_json()


def _check(settings: TableSettings, schema: dict[str, Any] | None) -> None:
    """Raise Invalid if no batch could be staged with these settings. `schema` is None for a table that does
    not exist.
    """
    from ingest.types.schema_plan import check_partitioning, partition_spec

    added = settings.changes_partition or ()
    check_partitioning([*settings.partition, *added])
    if schema is None:
        return
    columns = {field["name"] for field in schema["fields"]}
    for column in settings.key or ():
        if column not in columns:
            raise Invalid(f'key: the table has no column "{column}"')
    for text in settings.partition:
        partition_spec(schema, [text])
