"""What the demo tells Tidemill: windows of seconds instead of hours, and how it is judged."""

from dataclasses import dataclass
from pathlib import Path

METRICS = """\
[metrics.accepted]
type = "bool"
window_s = 2.5
aggregation = "last"
weight = 1.0
"""

SETTINGS = """\
data = "{folder}"
model = "tide"
metrics = "{folder}/metrics.toml"
environment = "examples.command_assistant.environment:environment"

[ingest]
close_grace_s = 0.5
batch_every_s = 0.2
close_every_s = 0.3

[learner]
batch_size = 16
uses_per_experience = {uses}
publish_every_s = {publish_every_s}
publish_every_experiences = {publish_every}
poll_s = 0.3
max_batch_wait_s = 30

[learner.objective]
kind = "trust_region"
# The champion that most data comes from changes less often here than the learner moves.
max_probability_difference = 0.3

[learner.optimiser]
lr = {learning_rate}

[backfill]
steps = {backfill_steps}
target_score = 0.93
seed = {seed}
max_tokens = 48

[backfill.optimiser]
lr = {backfill_rate}
kl_weight = 0.0
micro_batch_size = 64

[gating]
look_every_s = 0.5
retry_s = 2

[gating.offline]
num_tasks = 180
threshold = {threshold}
margin = 0.12
max_tokens = 48
max_batch = 64

[gating.canary]
share = 0.5
alpha = 0.3
alpha_harm = 0.1
min_pairs = 20
max_lift = 0.95
settle_s = 0.5
max_duration_s = {canary_s}

[gating.guardrails]
malformed_margin = 0.15

[gating.champion]
alpha = 0.05
min_pairs = 20
max_duration_s = 30
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to run the demo: which base, how long, and what it has to reach."""

    name: str
    num_users: int
    in_flight: int
    base_seconds: int
    backfill_steps: int
    backfill_rate: float
    learning_rate: float
    uses: int
    publish_every: int
    """New experiences that make the next candidate."""
    publish_every_s: float
    """And at the latest after this long."""
    threshold: float
    canary_s: float
    tide_s: float
    """Longest time with users."""
    min_promoted: int
    limit_s: float
    """Longest time for the whole demo."""


TINY = Variant(
    name="tiny",
    num_users=4000,
    in_flight=28,
    base_seconds=46,
    backfill_steps=40,
    backfill_rate=3e-3,
    learning_rate=1e-3,
    uses=1,
    publish_every=360,
    publish_every_s=60.0,
    threshold=0.78,
    canary_s=24.0,
    tide_s=185.0,
    min_promoted=3,
    limit_s=300.0,
)


def write_settings(folder: Path, variant: Variant, *, seed: int) -> Path:
    """Write settings and metrics into the demo's folder and return the settings file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.toml").write_text(METRICS)
    text = SETTINGS.format(
        folder=folder.as_posix(),
        seed=seed,
        uses=variant.uses,
        publish_every=variant.publish_every,
        publish_every_s=variant.publish_every_s,
        learning_rate=variant.learning_rate,
        backfill_steps=variant.backfill_steps,
        backfill_rate=variant.backfill_rate,
        threshold=variant.threshold,
        canary_s=variant.canary_s,
    )
    path = folder / "tidemill.toml"
    path.write_text(text)
    return path
