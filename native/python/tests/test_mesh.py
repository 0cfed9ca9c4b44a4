"""Replicas by the mesh: the same as Falcon's own (mesh_test.go reads the same file)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from falcon_torch import _mesh

MESHES = json.loads((Path(__file__).parent / "meshes.json").read_text())


@pytest.mark.parametrize("case", MESHES, ids=[c["mesh"] for c in MESHES])
def test_replicas(case: dict[str, object]) -> None:
    replica = list(case["replica"])  # type: ignore[call-overload]
    world = len(replica)
    at = [_mesh.place(str(case["mesh"]), rank, world) for rank in range(world)]
    assert [a.replica for a in at] == replica
    assert {a.replicas for a in at} == {max(replica) + 1}
    # Who has data of his own has a slot of his own; the ranks of a slot share it.
    assert {(a.replica, a.slot) for a in at} == {(r, s) for r in range(at[0].replicas) for s in range(at[0].width)}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "mesh '': '' is not NAME=SIZE"),
        ("dp", "'dp' is not NAME=SIZE"),
        ("dp=0", "'dp=0' is not NAME=SIZE"),
        ("dp=04", "'dp=04' is not NAME=SIZE"),
        ("dp=-4", "'dp=-4' is not NAME=SIZE"),
        ("dp=\u0664", "is not NAME=SIZE"),
        ("dp=2,dp=2", "'dp=2' is not NAME=SIZE with a name of tp, cp, etp, ep, fsdp, dp, pp, vpp, each once"),
        ("data=4", "'data=4' is not NAME=SIZE"),
        ("dp=3", "mesh 'dp=3' has 3 ranks; the job has 4"),
        ("tp=2,ep=3,dp=2", "6 ranks of etp and ep do not divide the ranks of a stage"),
        ("ep=2,dp=2,tp=2", "with ep, dp must come after tp, cp, etp and ep"),
        ("ep=2,pp=2,dp=2", "with ep, pp must come last"),
        ("tp=1," * 30 + "dp=4", "is not NAME=SIZE"),
    ],
)
def test_what_is_no_mesh_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"mesh") as e:
        _mesh.place(text, 0, 4)
    assert why in str(e.value)
