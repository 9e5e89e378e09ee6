"""Follows the registry: load, verify, probe, flip, drain. The gate decides; this only obeys.

A version that cannot be brought in, for whatever reason, is refused and recorded; whoever served
goes on. When the registry cannot be read, what is loaded goes on serving.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from serving.lineup import Lineup
from serving.scheduler import AdmissionWatch, EngineFactory, Scheduler
from tidemill.errors import RegistryError, StorageError, TidemillError
from tidemill.registry import Traffic
from tidemill.storage.replicas import FLIPPED, REFUSED, STARTED

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapRecord:
    """One start, swap or refusal, as `tidemill.storage.replicas` keeps it."""

    version: str
    role: str
    outcome: str
    detail: str
    in_flight: int
    pause_ms: float
    load_ms: float
    at: datetime


class TrafficSource(Protocol):
    """The part of the registry that serving follows."""

    def traffic(self) -> Traffic:
        """Return who should serve."""
        ...


class Replica(Protocol):
    """The process around the watcher."""

    @property
    def num_in_flight(self) -> int:
        """How many requests are under way, also those that only wait for the log."""
        ...

    def record_swap(self, record: SwapRecord) -> None:
        """Keep a record; a StorageError is tried again at the next tick."""
        ...


LoadVersion = Callable[[str], EngineFactory]
"""Loads and verifies a version; whatever it raises, the version does not serve."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What came of one attempt to bring a version in."""

    load_ms: float = 0.0
    refusal: str | None = None


def reason_of(error: Exception) -> str:
    """Return what an operator reads; an error that is not ours is named by its class."""
    if isinstance(error, TidemillError):
        return str(error)
    return ": ".join(filter(None, (type(error).__name__, str(error))))


class Watcher:
    """Keeps the lineup in step with the registry; one thread calls `tick`."""

    def __init__(
        self,
        *,
        registry: TrafficSource,
        load_version: LoadVersion,
        scheduler: Scheduler,
        replica: Replica,
        refused_retry_s: float,
    ) -> None:
        """Begin with nobody serving.

        Args:
            registry: who should serve.
            load_version: brings a version into memory.
            scheduler: decodes.
            replica: knows the requests and keeps the records.
            refused_retry_s: wait before a refused version is tried again.
        """
        self._registry = registry
        self._load_version = load_version
        self._scheduler = scheduler
        self._replica = replica
        self._refused_retry_s = refused_retry_s
        self._refused: dict[str, tuple[float, str]] = {}
        self._unrecorded: list[SwapRecord] = []
        self.lineup = Lineup()
        """Replaced whole at a flip; read it once for each request."""
        self.missing = "the registry was not read yet"
        """Why nobody serves; empty when somebody does."""
        self.num_swaps = 0

    def run(self, stop: threading.Event, *, poll_s: float) -> None:
        """Look at the registry until told to stop."""
        while not stop.is_set():
            self.tick()
            stop.wait(poll_s)

    def tick(self) -> None:
        """Look once; never raises for what another part did."""
        try:
            traffic = self._registry.traffic()
        except (StorageError, RegistryError) as error:
            _log.warning("the registry cannot be read, %s goes on: %s", self.lineup.versions, error)
            if self.lineup.champion is None:
                self.missing = f"the registry cannot be read: {error}"
            return
        self._follow(traffic)
        self._explain(traffic)
        self._flush_records()

    def _follow(self, traffic: Traffic) -> None:
        if self._is_current(traffic):
            return
        with self._scheduler.watch_admission() as watch:
            outcomes = {
                version: self._bring(version)
                for version in (traffic.champion, traffic.challenger)
                if version is not None and version not in self.lineup.versions
            }
            before, in_flight = self.lineup, self._replica.num_in_flight
            self.lineup = self._next_lineup(traffic)
            for version in set(before.versions) - set(self.lineup.versions):
                self._scheduler.retire(version)
        self._note(before, outcomes, in_flight=in_flight, watch=watch)

    def _is_current(self, traffic: Traffic) -> bool:
        return self.lineup == self._next_lineup(traffic) and not any(
            self._is_due(version)
            for version in (traffic.champion, traffic.challenger)
            if version is not None and version not in self.lineup.versions
        )

    def _is_due(self, version: str) -> bool:
        refused = self._refused.get(version)
        return refused is None or time.monotonic() >= refused[0]

    def _bring(self, version: str) -> _Loaded:
        if not self._is_due(version):
            return _Loaded()
        started = time.perf_counter()
        if self._scheduler.revive(version):
            return _Loaded()
        try:
            self._scheduler.add(version, self._load_version(version))
        except Exception as error:
            # Memory, disk and libraries fail in ways of their own: none may end this thread, which
            # alone brings the next promotion or rollback.
            return self._refuse(version, error)
        self._refused.pop(version, None)
        return _Loaded(load_ms=1000 * (time.perf_counter() - started))

    def _refuse(self, version: str, error: Exception) -> _Loaded:
        reason = reason_of(error)
        is_news = self._refused.get(version, (0.0, ""))[1] != reason
        self._refused[version] = (time.monotonic() + self._refused_retry_s, reason)
        trace = None if isinstance(error, TidemillError) or not is_news else error
        _log.error(
            "%s is refused, %s goes on: %s", version, self.lineup.versions, reason, exc_info=trace
        )
        return _Loaded(refusal=reason if is_news else None)

    def _next_lineup(self, traffic: Traffic) -> Lineup:
        """Return what the traffic row asks for, as far as it is in memory and verified."""
        ready = set(self._scheduler.accepting)
        champion = traffic.champion if traffic.champion in ready else self.lineup.champion
        if traffic.challenger is None or traffic.challenger not in ready - {champion}:
            return Lineup(champion=champion)
        return Lineup(
            champion=champion,
            challenger=traffic.challenger,
            challenger_share=traffic.challenger_share,
            salt=traffic.salt,
        )

    def _note(
        self,
        before: Lineup,
        outcomes: dict[str, _Loaded],
        *,
        in_flight: int,
        watch: AdmissionWatch,
    ) -> None:
        common = SwapRecord(
            version="",
            role="",
            outcome=STARTED if before.champion is None else FLIPPED,
            detail="",
            in_flight=in_flight,
            pause_ms=1000 * watch.longest_s,
            load_ms=0.0,
            at=datetime.now(UTC),
        )
        for version, loaded in outcomes.items():
            if loaded.refusal is not None:
                refused = replace(common, outcome=REFUSED, detail=loaded.refusal)
                self._unrecorded.append(replace(refused, version=version, role="candidate"))
        for role in ("champion", "challenger"):
            version = getattr(self.lineup, role)
            if version is not None and version != getattr(before, role):
                load_ms = outcomes.get(version, _Loaded()).load_ms
                self._unrecorded.append(
                    replace(common, version=version, role=role, load_ms=load_ms)
                )
                self.num_swaps += common.outcome == FLIPPED

    def _explain(self, traffic: Traffic) -> None:
        if self.lineup.champion is not None:
            self.missing = ""
        elif traffic.champion is None:
            self.missing = "no version has passed the offline suite yet, so there is no champion"
        else:
            reason = self._refused.get(traffic.champion, (0.0, "not loaded"))[1]
            self.missing = f"champion {traffic.champion} is refused: {reason}"

    def _flush_records(self) -> None:
        while self._unrecorded:
            try:
                self._replica.record_swap(self._unrecorded[0])
            except StorageError as error:
                _log.warning("a swap is not recorded yet: %s", error)
                return
            del self._unrecorded[0]
