"""What an operator may set about the gate. Rates and scores lie in [0, 1]."""

from pydantic import Field

from tidemill.settings import Block


class OfflineSettings(Block):
    """The offline suite: the environment's verifier on held-out tasks."""

    num_tasks: int = Field(default=200, ge=1, le=100_000)
    min_tasks: int = Field(default=50, ge=1)
    """An environment that gives fewer leaves the candidate on hold."""
    threshold: float = Field(default=0.6, ge=0, le=1)
    """Least mean verifier score; nobody below it meets a user."""
    margin: float = Field(default=0.05, ge=0, le=1)
    """How far a candidate may lie below the champion on the same tasks."""
    max_malformed_rate: float = Field(default=0.2, ge=0, le=1)
    temperature: float = Field(default=1.0, gt=0, le=5)
    """The behaviour temperature: judge what users will meet."""
    max_tokens: int = Field(default=256, ge=1)
    max_batch: int = Field(default=32, ge=1, le=1024)
    seed: int = Field(default=20_240_601, ge=0)
    """Of tasks and sampling; every version meets the same ones."""
    allow_without_suite: bool = False
    """True = without an environment, candidates pass unseen. Only for a product that tests its
    versions elsewhere: the first champion then meets users unproven."""


class CanarySettings(Block):
    """The live comparison of a challenger with the champion, by subject."""

    share: float = Field(default=0.1, gt=0, lt=1)
    """Share of subjects that the challenger serves."""
    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Level of false promotions over the whole stream of canaries; the ledger splits it."""
    alpha_harm: float = Field(default=0.05, gt=0, lt=1)
    """Chance to turn away a challenger that is not worse."""
    min_lift: float = Field(default=0.0, gt=-1, lt=1)
    """Promote only what is better by more than this; negative = non-inferiority."""
    max_lift: float = Field(default=0.5, gt=0, le=1)
    """A lift that is proven to be larger is too good: hold, and let a person look."""
    min_pairs: int = Field(default=50, ge=1)
    """No verdict for the challenger before so many labelled pairs."""
    min_duration_s: float = Field(default=0.0, ge=0)
    """No promotion before; a day shows every hour of use."""
    max_duration_s: float = Field(default=86_400.0, gt=0)
    """Then the challenger leaves undecided."""
    settle_s: float = Field(default=5.0, ge=0)
    """Evidence younger than this waits, so that its order no longer changes."""
    alpha_sample_ratio: float = Field(default=0.001, gt=0, lt=1)
    """Level at which the arms' sizes contradict the declared share: hold, nothing is comparable."""


class GuardrailSettings(Block):
    """What a challenger must not spoil while it pleases."""

    alpha: float = Field(default=0.05, gt=0, lt=1)
    malformed_margin: float = Field(default=0.05, gt=0, lt=1)
    """Largest acceptable rise of the malformed-call rate."""
    length_tolerance: float = Field(default=0.5, gt=0, lt=1)
    """Largest acceptable change of the mean completion length, as a fraction, up or down."""
    length_cap: int | None = Field(default=None, ge=1)
    """Longer completions (tokens) count as this long; None = four times the champion's mean length
    in the offline suite, 1024 without one."""


class ChampionSettings(Block):
    """The watch over a new champion against the one before it."""

    alpha: float = Field(default=0.01, gt=0, lt=1)
    """Chance to roll back a champion that is not worse by more than the margin."""
    margin: float = Field(default=0.05, ge=0, lt=1)
    """Drop of live acceptance that is put down to the time of day."""
    min_pairs: int = Field(default=50, ge=1)
    """A champion that came without a canary keeps the next canary waiting until so many labelled
    pairs, or `max_duration_s`, have passed without proof of harm."""
    max_pairs: int = Field(default=1000, ge=1)
    """Newest outcomes of the champion before that are compared with."""
    max_duration_s: float = Field(default=86_400.0, gt=0)
    """How long a champion is watched."""


class GatingSettings(Block):
    """The gate: each candidate is judged as soon as it is published."""

    look_every_s: float = Field(default=60.0, gt=0)
    """How often evidence is looked at; any number of looks is fair."""
    retry_s: float = Field(default=60.0, ge=0)
    """Wait before a candidate that is on hold offline is tried again."""
    hold_every_s: float = Field(default=600.0, ge=0)
    """An unchanged hold is stored again after this long."""
    offline: OfflineSettings = OfflineSettings()
    canary: CanarySettings = CanarySettings()
    guardrails: GuardrailSettings = GuardrailSettings()
    champion: ChampionSettings = ChampionSettings()
