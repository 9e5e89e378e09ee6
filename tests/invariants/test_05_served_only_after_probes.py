"""Invariant 5: a version is served only after its digest and its probes hold on that replica.

The serving half: a champion that fails either is refused and recorded, whoever served goes on, and
the version serves as soon as it holds.
"""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.serving_process import WHY, Installation, ServingThread, installation, serving
from tidemill.snapshots.manifest import content_digest
from tidemill.snapshots.store import MANIFEST_FILE, TENSORS_FILE
from tidemill.storage.replicas import REFUSED, fetch_replica_versions


def damage_tensors(folder: Path) -> None:
    """Change one weight behind the manifest's back."""
    tensors = load_file(folder / TENSORS_FILE)
    next(iter(tensors.values())).view(-1)[0] += 1
    save_file(tensors, folder / TENSORS_FILE)


def damage_manifest(folder: Path) -> None:
    """Promise other log-probs, with a digest that fits the manifest but not the registry."""
    manifest = json.loads((folder / MANIFEST_FILE).read_text())
    manifest["probes"][0]["logprobs"][0] -= 1
    manifest["digest"] = content_digest(manifest)
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest))


def remove(folder: Path) -> None:
    """Take the snapshot away."""
    shutil.rmtree(folder)


def refusals(place: Installation) -> list[tuple[str, str]]:
    """Return (version, detail) of every recorded refusal."""
    shared = place.shared
    with place.database.reading() as session:
        rows = fetch_replica_versions(session, model=shared.model, tenant=shared.tenant)
    return [(row.version, row.detail) for row in rows if row.outcome == REFUSED]


def answering_version(server: ServingThread) -> str | None:
    """Ask once; return the version that answered."""
    with server.client() as client:
        answer = client.completions.create(model="tide", prompt="hello", max_tokens=2)
    return answer.system_fingerprint


@pytest.mark.parametrize("damage", [damage_tensors, damage_manifest, remove])
def test_a_damaged_champion_is_refused_and_the_old_one_goes_on(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    with installation(tmp_path / "data") as place:
        good, bad = place.crown(seed=1), place.publish(seed=2)
        folder = place.shared.snapshots_path / bad
        shutil.copytree(folder, tmp_path / "kept")
        damage(folder)
        with serving(place, refused_retry_s=0.2) as server:
            place.registry.promote(bad, why=WHY)
            server.wait_until(lambda _: bool(refusals(place)))

            assert answering_version(server) == good
            assert server.wait_until(lambda body: body["ready"])["versions"] == [good]
            [(version, detail)] = refusals(place)
            assert version == bad
            assert detail

            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(tmp_path / "kept", folder)
            server.wait_for_versions(bad)
            assert answering_version(server) == bad


def test_weights_that_compute_something_else_are_refused_by_their_probes(tmp_path: Path) -> None:
    with installation(tmp_path / "data") as place:
        good = place.crown(seed=1)
        # Every digest is right, but the promised values come from other weights.
        lying = place.publish(seed=2, probes_of=3)
        with serving(place) as server:
            place.registry.start_canary(lying, share=0.5, alpha=0.05, why=WHY)
            server.wait_until(lambda _: bool(refusals(place)))

            assert server.wait_until(lambda body: body["ready"])["versions"] == [good]
            assert {answering_version(server) for _ in range(8)} == {good}
            assert "log-probs differ" in refusals(place)[0][1]


def test_without_any_good_version_the_server_is_not_ready_and_says_why(tmp_path: Path) -> None:
    with installation(tmp_path / "data") as place:
        only = place.publish(seed=1)
        with serving(place) as server:
            body = server.wait_until(lambda body: "offline suite" in str(body["missing"]))
            assert body["ready"] is False

            remove(place.shared.snapshots_path / only)
            place.registry.promote(only, why=WHY)
            body = server.wait_until(lambda body: only in str(body["missing"]))
            assert body["ready"] is False


def test_the_base_alone_can_serve(tmp_path: Path) -> None:
    with installation(tmp_path / "data") as place:
        version = place.register_base()
        place.registry.promote(version, why=WHY)
        with serving(place) as server:
            assert answering_version(server) == version
