"""The product's copy for backfill and the offline suite: tasks and the verifier, no taste."""

from examples.command_assistant.dataset import supervised_examples
from examples.command_assistant.tasks import draw_tasks
from examples.command_assistant.verifier import verify
from tidemill.environments.base import Split, Task, Verification


class CommandAssistant:
    """An `Environment`; deterministic."""

    name = "command_assistant"

    def tasks(self, split: Split, *, seed: int, count: int) -> list[Task]:
        """Return `count` tasks of a split."""
        return draw_tasks(split, seed=seed, count=count)

    def verify(self, task: Task, completion: str) -> Verification:
        """Score a completion text by validity."""
        return verify(task, completion)

    supervised_examples = staticmethod(supervised_examples)
    """What `tidemill base train` learns from."""


environment = CommandAssistant()
