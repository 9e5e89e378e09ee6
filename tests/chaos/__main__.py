"""`python -m tests.chaos`: a run at full size; exit 0 when nothing was lost or doubled."""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from examples.servers.starting import ServerError
from tests.chaos.plan import Plan
from tests.chaos.run import Report, Say, run_chaos
from tests.chaos.stacks import PRODUCTION, STACKS

_MAX_SEED = 10**6


def main() -> int:
    """Run once and tell."""
    # As Ctrl-C: the processes and servers end with the run, also when the terminal goes.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    options = _read_arguments()
    seed = random.randrange(_MAX_SEED) if options.seed is None else options.seed
    plan = Plan(
        seed=seed,
        num_feedback=options.items,
        num_kills=options.rounds,
        num_restarts=max(1, options.rounds // 10),
        num_poison=options.items // 10,
    )
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {what}", flush=True)  # noqa: T201

    say(f"{options.stack}, seed {seed}: {plan}")
    folder = Path(tempfile.mkdtemp(prefix="tidemill-chaos-"))
    # Whoever runs the database must be able to reach its folder.
    folder.chmod(0o755)
    try:
        report = run_chaos(options.stack, plan, folder, say)
    except ServerError as error:
        shutil.rmtree(folder, ignore_errors=True)
        say(str(error))
        return 3
    _tell(report, say, seed=seed, folder=folder)
    return 1 if report.problems else 0


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--stack", choices=STACKS, default=PRODUCTION)
    parser.add_argument("--rounds", type=int, default=50, help="kills in all, 1 or more")
    parser.add_argument("--items", type=int, default=100_000, help="feedback ids, 100 or more")
    parser.add_argument("--seed", type=int, help="of an earlier run; default: a new one")
    options = parser.parse_args()
    if options.rounds < 1 or options.items < 100:
        parser.error(f"too little to learn from: {options.rounds} rounds, {options.items} items")
    return options


def _tell(report: Report, say: Say, *, seed: int, folder: Path) -> None:
    say(
        f"{report.num_faults} faults; {report.num_acknowledged} of {report.num_sent} ids "
        f"acknowledged in {report.num_attempts} requests; {report.num_poison} mutated events; "
        f"{report.num_records} records in the log"
    )
    for problem in report.problems:
        say(f"PROBLEM: {problem}")
    if report.problems:
        say(f"{len(report.problems)} problems; seed {seed}; everything lies in {folder}")
        return
    shutil.rmtree(folder, ignore_errors=True)
    say("nothing was lost or doubled; the ledger balances; a replay gives the same")


if __name__ == "__main__":
    sys.exit(main())
