"""One pass of the gate: watch the champion, look at the canary, judge the next candidate."""

from gating.canary import CanaryStep
from gating.context import GateContext
from gating.offline import Measure, OfflineStep
from gating.watch import WatchStep


class Gate:
    """Moves versions by evidence; each pass is complete in itself, so a restart loses nothing."""

    def __init__(self, context: GateContext, measure: Measure) -> None:
        self._registry = context.registry
        self._watch = WatchStep(context)
        self._canary = CanaryStep(context)
        self._offline = OfflineStep(context, measure)

    def run_once(self) -> list[str]:
        """Make one pass and return what happened; at most one candidate runs the suite."""
        watched = self._watch.look()
        happened = [watched.summary, self._canary.look()]
        if self._registry.challenger() is None:
            if watched.is_trusted:
                happened.append(self._offline.judge_next())
            elif self._registry.candidates():
                happened.append("candidates wait until the champion has shown itself")
        return [line for line in happened if line is not None]
