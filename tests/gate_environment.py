"""Environments for tests of the offline suite: a sane one, and two that misbehave."""

from tidemill.environments.base import Split, Task, Verification


class EchoEnvironment:
    """Asks for anything; a completion is good when it holds an even number of characters."""

    name = "echo"

    def tasks(self, split: Split, *, seed: int, count: int) -> list[Task]:
        return [
            Task(
                task_id=f"{split}-{seed}-{index}",
                context="echo",
                messages=({"role": "user", "content": f"say {index}"},),
            )
            for index in range(count)
        ]

    def verify(self, task: Task, completion: str) -> Verification:
        score = float(len(completion) % 2 == 0)
        return Verification(
            score=score, components={}, is_malformed=not completion, reason=task.task_id
        )


class FaultyEnvironment(EchoEnvironment):
    def verify(self, task: Task, completion: str) -> Verification:
        raise KeyError(f"the product's own mistake on {task.task_id}, {len(completion)}")


class EmptyEnvironment(EchoEnvironment):
    def tasks(self, split: Split, *, seed: int, count: int) -> list[Task]:
        return super().tasks(split, seed=seed, count=0 * count)
