from serving.assignment import PINNED, assign
from serving.lineup import Lineup, Route, model_names, pinned_name, pinned_version
from tidemill.contracts.events import Arm

CANARY = Lineup(champion="v1-a", challenger="v2-b", challenger_share=0.5, salt="s")


def test_nobody_serves_without_a_champion() -> None:
    assert Lineup().route("u") is None
    assert Lineup().versions == ()


def test_a_champion_alone_serves_everybody_for_certain() -> None:
    route = Lineup(champion="v1-a").route("u")

    assert route is not None
    assert (route.version, route.assignment.arm) == ("v1-a", Arm.CHAMPION)
    assert route.assignment.probability == 1.0


def test_a_canary_splits_by_the_assignment() -> None:
    for number in range(50):
        unit = f"unit {number}"
        assignment = assign(unit, salt="s", challenger_share=0.5)
        version = "v2-b" if assignment.arm is Arm.CHALLENGER else "v1-a"
        assert CANARY.route(unit) == Route(version, assignment)


def test_only_a_served_version_can_be_pinned() -> None:
    assert CANARY.pin("v2-b") == Route("v2-b", PINNED)
    assert CANARY.pin("v9-z") is None


def test_names() -> None:
    assert model_names("tide", CANARY.versions) == ["tide", "tide@v1-a", "tide@v2-b"]
    assert pinned_version(pinned_name("tide", "v1-a"), model="tide") == "v1-a"
    assert pinned_version("tide", model="tide") == ""
    assert pinned_version("tides", model="tide") is None
