from ingest.figures import render_figures
from tidemill.storage.ledger_groups import StateCount


def test_states_and_answers_become_lines() -> None:
    states = [
        StateCount(kind="feedback", tenant='a"b\\c\nd', state="joined", number=3),
        StateCount(kind="interactions", tenant="t", state="open", number=2),
    ]
    text = render_figures(states=states, answered={"retry": 1, "accepted": 7}, in_flight=4)
    assert text == (
        "# TYPE tidemill_ingest_ledger_interactions gauge\n"
        'tidemill_ingest_ledger_interactions{tenant="t",state="open"} 2\n'
        "# TYPE tidemill_ingest_ledger_feedback gauge\n"
        r'tidemill_ingest_ledger_feedback{tenant="a\"b\\c\nd",state="joined"} 3'
        "\n"
        "# TYPE tidemill_ingest_ledger_dead_letters gauge\n"
        "# TYPE tidemill_ingest_answered_total counter\n"
        'tidemill_ingest_answered_total{status="accepted"} 7\n'
        'tidemill_ingest_answered_total{status="retry"} 1\n'
        "# TYPE tidemill_ingest_in_flight gauge\n"
        "tidemill_ingest_in_flight 4\n"
    )
