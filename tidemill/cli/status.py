"""`tidemill status`: the parts, who serves, and how far ingest is behind the log."""

import json
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.context import load_settings, opened_database

if TYPE_CHECKING:
    from tidemill.cli.settings import Settings
    from tidemill.settings import SharedSettings
    from tidemill.storage.database import Database

_READY = "ready"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(status)


def status(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show parts, versions and lag; exit 0 when every known part is ready, else 1."""
    settings = load_settings(ctx)
    with opened_database(settings.shared) as database:
        report = _report(settings, database)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        _print(report)
    states = [part["state"] for part in report["parts"]]
    if not states or any(state != _READY for state in states):
        raise typer.Exit(1)


def _report(settings: "Settings", database: "Database") -> dict[str, Any]:
    from datetime import UTC, datetime

    from tidemill.registry import PolicyRegistry
    from tidemill.supervisor.health import judge_sign, read_signs
    from tidemill.supervisor.missing import find_missing

    shared, now = settings.shared, datetime.now(UTC)
    registry = PolicyRegistry(database, model=shared.model, tenant=shared.tenant)
    traffic = registry.traffic()
    parts = [judge_sign(sign, now=now) for sign in read_signs(database).values()]
    return {
        "parts": [
            {
                "name": part.name,
                "state": part.state.value,
                "detail": part.detail,
                "pid": part.pid,
                "counters": part.counters,
            }
            for part in parts
        ],
        "champion": traffic.champion,
        "challenger": traffic.challenger,
        "challenger_share": traffic.challenger_share,
        "versions": dict(Counter(record.status.value for record in registry.list())),
        **_lag(shared, database, settings.ingest.consumer_group),
        "missing": find_missing(shared, registry),
    }


def _lag(
    shared: "SharedSettings", database: "Database", group: str
) -> dict[str, dict[str, float | None]]:
    """Return how far ingest is behind each topic, in records and seconds; None = cannot tell."""
    from datetime import UTC, datetime

    from tidemill.errors import EventLogError
    from tidemill.eventlog.opening import open_log
    from tidemill.lag import TOPICS_CONSUMED, measure_lag

    records: dict[str, float | None] = {}
    seconds: dict[str, float | None] = {}
    log = open_log(shared)
    try:
        for topic in TOPICS_CONSUMED:
            try:
                found = measure_lag(database, log, (topic,), group=group, now=datetime.now(UTC))
            except EventLogError:
                records[topic] = seconds[topic] = None
                continue
            records[topic] = sum(one.lag_records or 0 for one in found)
            seconds[topic] = max((one.lag_s or 0.0 for one in found), default=0.0)
    finally:
        log.close()
    return {"lag": records, "lag_s": seconds}


def _print(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("part", "state", "detail", "pid", box=None, pad_edge=False)
    for part in report["parts"]:
        table.add_row(part["name"], part["state"], part["detail"], str(part["pid"]))
    Console().print(table)
    typer.echo(f"champion: {report['champion'] or 'none'}")
    if report["challenger"]:
        share = f"{report['challenger_share']:.0%}"
        typer.echo(f"challenger: {report['challenger']} ({share} of users)")
    counts = ", ".join(f"{number} {name}" for name, number in sorted(report["versions"].items()))
    typer.echo(f"versions: {counts or 'none'}")
    for topic, behind in report["lag"].items():
        seconds = report["lag_s"][topic]
        told = "cannot tell" if behind is None else f"{behind} records, {seconds:.1f} s behind"
        typer.echo(f"{topic}: {told}")
    if report["missing"]:
        typer.echo(f"missing: {report['missing']}")
