from serving.metrics import render_metrics


def test_counters_and_gauges_in_text_form() -> None:
    assert render_metrics({"completed_total": 3, "in_flight": 2}) == (
        "# TYPE tidemill_serving_completed_total counter\n"
        "tidemill_serving_completed_total 3\n"
        "# TYPE tidemill_serving_in_flight gauge\n"
        "tidemill_serving_in_flight 2\n"
    )
