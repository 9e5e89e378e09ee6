import logging
import os
import subprocess
import sys
import threading

import pytest

from checks.files import ROOT
from tests.feedback_clients import FAST, Blocking, feedback
from tests.scripted_feedback_api import Reply
from tidemill.client import FeedbackClient, Options

_HEAD = """
import os, sys
from tidemill.client import Feedback, FeedbackClient, Options
made = []
def client(**options):
    made.append(FeedbackClient(sys.argv[1], options=Options(**({"send_after_s": 60.0} | options))))
    return made[-1]
def feedback(name):
    return Feedback(feedback_id=name, interaction_id="i", metric="accepted", value=True)
"""


def _run(script: str, url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _HEAD + script, url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("end", "code"),
    [("", 0), ("raise KeyError('broken')", 1), ("sys.exit(3)", 3), ("client().queue(1/0)", 1)],
)
def test_what_is_queued_is_flushed_at_exit(api, end, code) -> None:
    script = "one = client()\nfor at in range(50): one.queue(feedback(f'f{at}'))\n"
    done = _run(script + end, api.url)
    assert done.returncode == code, done.stderr
    assert api.acknowledged == [f"f{at}" for at in range(50)]


def test_what_cannot_be_flushed_at_exit_is_logged(api) -> None:
    api.stop()
    done = _run("client(close_timeout_s=0.2).queue(feedback('f0'))", api.url)
    assert done.returncode == 0
    assert "1 feedbacks were not acknowledged: f0" in done.stderr


def test_an_exit_while_the_api_is_busy_waits_for_it(api) -> None:
    api.script.extend([Reply(503, headers={"retry-after": "0"}), Reply(drops=True)])
    done = _run("client().queue(feedback('f0'))", api.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert api.acknowledged == ["f0"]


def test_a_forked_child_has_an_outbox_and_connections_of_its_own(api) -> None:
    script = """
one = client()
one.send(feedback("before"))
one.queue(feedback("parent"))
pid = os.fork()
if pid == 0:
    one.queue(feedback("child"))
    one.send(feedback("sent-by-child"))
    sys.exit(0 if one.num_queued == 1 else 7)
_, status = os.waitpid(pid, 0)
assert status == 0, status
one.send(feedback("after"))
"""
    done = _run(script, api.url)
    assert (done.returncode, done.stderr) == (0, "")
    sent = [name for names in api.sent_ids for name in names]
    assert sorted(sent) == ["after", "before", "child", "parent", "sent-by-child"]


def test_a_fork_while_another_thread_holds_the_lock_does_not_block_the_child(api) -> None:
    script = """
import threading
one = client()
one.queue(feedback("parent"))
held, go = threading.Event(), threading.Event()
def hold():
    with one._changed:
        held.set()
        go.wait()
threading.Thread(target=hold).start()
held.wait()
pid = os.fork()
if pid == 0:
    one.queue(feedback("child"))
    one.close()
    os._exit(0)
_, status = os.waitpid(pid, 0)
go.set()
sys.exit(status)
"""
    done = _run(script, api.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(api.acknowledged) == ["child", "parent"]


def test_many_threads_may_use_one_client(api) -> None:
    with Blocking(api.url, max_batch_items=50) as client:

        def work(number: int) -> None:
            for at in range(40):
                client.queue(feedback(f"{number}-{at}"))
                if at % 10 == 0:
                    client.send(feedback(f"{number}-{at}-now"))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    queued = [name for name in api.acknowledged if not name.endswith("now")]
    assert len(api.acknowledged) == len(set(api.acknowledged)) == 8 * 44
    for number in range(8):
        mine = [name for name in queued if name.startswith(f"{number}-")]
        assert mine == [f"{number}-{at}" for at in range(40)]


def test_a_callback_that_fails_stops_nothing(api, caplog) -> None:
    api.script.append(Reply(items={"f0": "rejected"}))

    def fail(_: object) -> None:
        raise KeyError("broken")

    with FeedbackClient(api.url, options=Options(**FAST), on_rejected=fail) as client:
        client.queue(feedback("f0"))
        assert client.flush()
        client.queue(feedback("f1"))
    assert api.acknowledged == ["f1"]
    assert "on_rejected failed for f0" in caplog.text


def test_a_callback_may_queue_even_into_a_full_outbox(api) -> None:
    api.script.append(Reply(items={"f0": "rejected"}))
    client = FeedbackClient(
        api.url,
        options=Options(**(FAST | {"max_queued": 1, "queue_block_s": 30.0})),
        on_rejected=lambda told: client.queue(feedback(f"{told.feedback.feedback_id}-again")),
    )
    with client:
        client.queue(feedback("f0"))
        assert client.flush()
    assert api.acknowledged == ["f0-again"]


def test_a_rejection_is_logged_without_what_the_user_said(api, caplog) -> None:
    api.script.append(Reply(items={"f0": "rejected"}))
    caplog.set_level(logging.INFO, logger="tidemill")
    with FeedbackClient(api.url, options=Options(**FAST)) as client:
        client.queue(feedback("f0", value={"comment": "my secret"}, rater="ann"))
    assert "feedback f0 (accepted) was rejected: said rejected" in caplog.text
    assert "secret" not in caplog.text
    assert "ann" not in caplog.text


def test_an_unexpected_failure_does_not_end_the_sending_thread(api, monkeypatch, caplog) -> None:
    client = Blocking(api.url)
    connect, failures = client._connect, [OSError("unexpected")]

    def sometimes():
        if failures:
            raise failures.pop()
        return connect()

    monkeypatch.setattr(client, "_connect", sometimes)
    client.queue(feedback("f0"))
    assert client.flush()
    assert client.close() == ()
    assert api.acknowledged == ["f0"]
    assert "a batch could not be sent" in caplog.text


def test_no_thread_starts_before_something_is_queued(api) -> None:
    with Blocking(api.url) as client:
        client.send(feedback("f0"))
        assert client._thread is None
        client.queue(feedback("f1"))
        thread = client._thread
    assert thread is not None
    assert not thread.is_alive()


def test_importing_the_client_loads_nothing_heavy() -> None:
    script = (
        "import sys, tidemill.client;"
        "heavy = {'torch', 'sqlalchemy', 'fastapi', 'pydantic', 'numpy', 'transformers', 'mlflow',"
        " 'kafka', 'starlette'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, env=os.environ)
