"""The plot of the tide: what users said, what they truly thought, and when versions changed."""

from collections.abc import Sequence
from pathlib import Path

from examples.command_assistant.tally import Tally


def draw_plot(path: Path, tally: Tally, promotions: Sequence[tuple[float, str]]) -> None:
    """Write a PNG; `promotions` are (second, version)."""
    # Slow to import, and needed only at the end.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, label, style in (
        ("liked", "right by true taste", "-"),
        ("accepted", "accepted (noisy votes)", ":"),
    ):
        points = tally.curve(name)
        axes.plot([at for at, _ in points], [share for _, share in points], style, label=label)
    for at, version in promotions:
        axes.axvline(at, color="0.6", linewidth=0.8)
        axes.text(at, 1.01, version.split("-")[0], ha="center", fontsize=8)
    axes.set(xlabel="seconds with users", ylabel="share of answers", ylim=(0, 1))
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
