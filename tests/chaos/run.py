"""One run: traffic and poison while things die, then quiet, then the set check."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ingest.settings import IngestSettings
from tests.chaos.cluster import Cluster, running_cluster
from tests.chaos.driver import Driver, StallError
from tests.chaos.plan import Plan, plan_faults
from tests.chaos.poison import Poisoner, draw_mutants
from tests.chaos.senders import Book, Sender
from tests.chaos.stacks import write_settings
from tests.chaos.traffic import requests
from tests.chaos.verdict import (
    find_command_problems,
    find_problems,
    find_replay_problems,
    read_log,
)
from tidemill.storage.database import Database

NUM_SENDERS = 4
NUM_WORKERS = 2
API_AHEAD_S = (3600.0, -3600.0)
"""Producers whose clocks are an hour off in either direction."""

SETTINGS = IngestSettings(
    unmatched_after_s=8.0,
    poll_records=200,
    poll_timeout_s=0.1,
    count_every_s=0.5,
    max_in_flight=1000,
)
"""Small batches and short waits: there is more to cut in two."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a run came to."""

    num_faults: int
    num_sent: int
    """Ids, of feedback and interactions."""
    num_acknowledged: int
    num_poison: int
    num_attempts: int
    """Requests."""
    num_records: int
    """In the log, at the end."""
    problems: list[str]
    """In words; empty = nothing was lost or doubled."""


def run_chaos(stack_name: str, plan: Plan, folder: Path, say: Say = lambda _: None) -> Report:
    """Make one run in an empty folder.

    Raises:
        ServerError: a server is missing or did not start.
    """
    with running_cluster(
        stack_name, folder, SETTINGS, num_workers=NUM_WORKERS, ahead_s=API_AHEAD_S
    ) as cluster:
        driver = Driver(
            plan=plan, cluster=cluster, book=Book(), may_send=threading.Event(), say=say
        )
        return _run(driver, folder)


def _run(driver: Driver, folder: Path) -> Report:
    plan, book, cluster = driver.plan, driver.book, driver.cluster
    fleet, stack = cluster.fleet, cluster.stack
    stop = threading.Event()
    mutants = draw_mutants(plan.num_poison, seed_number=plan.seed)
    poisoner = Poisoner(
        log=cluster.log,
        mutants=mutants,
        # A little ahead, so that the last of it goes while the last traffic does.
        allowed=lambda: int((driver.share + 0.05) * len(mutants)),
        stop=stop,
    )
    faults = plan_faults(
        plan,
        processes=list(fleet.slots),
        workers=fleet.workers,
        servers=list(stack.servers),
    )
    problems: list[str] = []
    try:
        driver.drive(faults, [*_senders(driver, stop), poisoner])
        driver.say("everything is sent; the workers read the rest")
        driver.rest()
    except StallError as error:
        problems.append(str(error))
    finally:
        stop.set()
    codes = fleet.stop()
    problems += [f"{name} ended with {code} on SIGTERM" for name, code in codes.items() if code]
    problems += fleet.endings + book.refusals[:10] + poisoner.errors
    if (len(book.over), poisoner.num_appended) != (plan.num_feedback, plan.num_poison):
        problems.append(f"sent only {len(book.over)} ids, {poisoner.num_appended} mutated events")
    driver.say("everything is at rest; the set check")
    records = read_log(cluster.log)
    problems += find_problems(cluster.database, records, book)
    problems += _find_command_problems(cluster, folder)
    return Report(
        num_faults=len(faults),
        num_sent=len(book.bodies),
        num_acknowledged=len(book.acknowledged),
        num_poison=poisoner.num_appended,
        num_attempts=book.num_attempts,
        num_records=len(records),
        problems=problems,
    )


def _find_command_problems(cluster: Cluster, folder: Path) -> list[str]:
    settings = folder / "tidemill.toml"
    write_settings(cluster.stack, SETTINGS, settings)
    # Into the other kind of database, for a cluster on PostgreSQL.
    fresh = f"sqlite:///{folder / 'again.db'}"
    problems = find_command_problems(settings, fresh)
    if problems:
        # There may be nothing to hold the rows against.
        return problems
    replayed = Database(fresh)
    try:
        return find_replay_problems(cluster.database, replayed)
    finally:
        replayed.close()


def _senders(driver: Driver, stop: threading.Event) -> list[Sender]:
    plan, cluster = driver.plan, driver.cluster
    key = cluster.create_key()
    shares = [len(range(number, plan.num_feedback, NUM_SENDERS)) for number in range(NUM_SENDERS)]
    return [
        Sender(
            urls=cluster.fleet.urls,
            key=key,
            requests=requests(
                random.Random(f"{plan.seed}-{number}"), num_feedback=share, prefix=f"s{number}"
            ),
            book=driver.book,
            rng=random.Random(number),
            may_send=driver.may_send,
            stop=stop,
        )
        for number, share in enumerate(shares)
    ]
