"""An environment for tests: any prompt, and the completion should begin low in the alphabet."""

from tidemill.environments.base import Split, Task, Verification


class FirstLetter:
    """Right when the first character comes before `U`; empty completions are malformed."""

    name = "first_letter"

    def tasks(self, split: Split, *, seed: int, count: int) -> list[Task]:
        return [
            Task(
                task_id=f"{split}-{seed}-{number}",
                context="letter",
                messages=({"role": "user", "content": f"letter {number % 3}"},),
            )
            for number in range(count)
        ]

    def verify(self, task: Task, completion: str) -> Verification:
        del task
        is_right = completion[:1] != "" and completion[0] < "U"
        return Verification(
            score=float(is_right),
            components={"first": float(is_right)},
            is_malformed=completion == "",
            reason="right" if is_right else "wrong",
        )


environment = FirstLetter()
