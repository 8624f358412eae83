"""One forged certificate per rule of what bounds makespans only: shared work, and segments in series."""

from __future__ import annotations

import dataclasses
import math

import pytest
from forged import small

import placekit as pk
from placekit.model.errors import InvalidCertificateError
from placekit.solve.certificates import Certificate, Series, SharedWork
from placekit.verification.exact import ExactProblem
from placekit.verification.prices import NOTHING_FEASIBLE, Bound
from placekit.verification.proofs import proven
from placekit.verification.series import OpenCertificateError
from placekit.verification.verify import certifies, verify

MAKESPAN = pk.Makespan()
BESIDE = small(MAKESPAN, [[1.0, None], [None, 0.0]])  # an op of 1 s on p, and one of 0 s on q
THREE = small(MAKESPAN, [[1.0], [1.0], [1.0]], "ab bc", counts=(1,))  # 3 s in a row
PARALLEL = small(MAKESPAN, [[1.0], [1.0], [1.0], [1.0]], "ab cd", counts=(2,))  # two chains of 2 s at a time

FORGED: dict[str, tuple[pk.Problem, Certificate, str]] = {
    # 2 s of 1 s: a negative row makes the sum of the weights smaller
    "row of negative weight": (BESIDE, SharedWork((((0,), (0,), 2.0), ((1,), (1,), -1.0))), "a row has weight -1.0"),
    "row of no number": (BESIDE, SharedWork((((0,), (0,), math.nan),)), "a row has weight nan"),
    "row of endless weight": (BESIDE, SharedWork((((0,), (0,), math.inf),)), "a row has weight inf"),
    # 2 s of 1 s: the op's work counts twice
    "row with an op twice": (BESIDE, SharedWork((((0,), (0, 0), 1.0),)), "names an op twice"),
    "row with an op by two names": (BESIDE, SharedWork((((0,), (0, -2), 1.0),)), "names op -2; the problem has 2"),
    "row without such an op": (BESIDE, SharedWork((((0,), (2,), 1.0),)), "names op 2; the problem has 2"),
    "row with a device twice": (BESIDE, SharedWork((((0, 0), (0,), 1.0),)), r"a row is of devices \[0, 0\]"),
    "row without such a device": (BESIDE, SharedWork((((2,), (0,), 1.0),)), r"a row is of devices \[2\]"),
    "row of a device from the end": (BESIDE, SharedWork((((-1,), (0,), 1.0),)), r"a row is of devices \[-1\]"),
    # 2.33 s of 1 s: what precedes and follows an op of one sample, the devices do for others meanwhile
    "rows of another objective": (
        small(pk.Throughput(), [[1.0]] * 3, "ab bc", counts=(3,)),
        SharedWork((((0, 1, 2), (1,), 1.0),)),
        "shared work bounds the makespan only",
    ),
    "series of another objective": (
        small(pk.Throughput(), [[1.0]] * 3, "ab bc", counts=(3,)),
        Series((1,), ()),
        "segments in series bound the makespan only",
    ),
    "cuts of two chains": (PARALLEL, Series((1, 2), ()), "nothing leads to cut 2 from the one before"),
    "a cut twice": (THREE, Series((1, 1), ()), "nothing leads to cut 1 from the one before"),
    "cuts in the wrong order": (THREE, Series((2, 1), ()), "nothing leads to cut 1 from the one before"),
    "no such cut": (THREE, Series((3,), ()), "nothing leads to cut 3"),
    "a cut from the end": (THREE, Series((-1,), ()), "nothing leads to cut -1"),
    # 11 s of 3 s: the last two ops take 2 s
    "a segment of too many seconds": (
        THREE,
        Series((1,), ((1, 0, None, 10.0),)),
        r"a segment of 2 ops takes less than 9\.99",
    ),
    "no such segment": (THREE, Series((1,), ((2, 0, None, 2.0),)), "segment 2 on devices 0, None has no 2.0 s"),
    "a segment from the end": (THREE, Series((1,), ((-1, 0, None, 2.0),)), "segment -1 on devices 0, None has no"),
    "a segment from no device": (THREE, Series((1,), ((1, 1, None, 2.0),)), "segment 1 on devices 1, None has no"),
    "a segment to no device": (THREE, Series((1,), ((0, None, 1, 2.0),)), "segment 0 on devices None, 1 has no"),
    "a device from the end": (THREE, Series((1,), ((1, -1, None, 2.0),)), "segment 1 on devices -1, None has no"),
    "a segment of no number": (THREE, Series((1,), ((1, 0, None, math.nan),)), "has no nan s"),
    "an endless segment": (THREE, Series((1,), ((1, 0, None, math.inf),)), "has no inf s"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_bounds_of_makespans_are_refused(name: str) -> None:
    """For the reason that the rule names; so nothing is certified, however little is claimed."""
    problem, certificate, words = FORGED[name]
    with pytest.raises(InvalidCertificateError, match=words):
        proven(ExactProblem.of(problem), certificate)
    assert not certifies(certificate, 0.0, problem)


# a leads to b, c and d, which all lead to e: 1 s each, on two devices, so b, c and d take 2 s
FORK = small(MAKESPAN, [[1.0]] * 5, "ab ac ad be ce de", counts=(2,))
HONEST: dict[str, tuple[pk.Problem, Certificate, Bound]] = {
    "all work between": (FORK, SharedWork((((0, 1), (1, 2, 3), 1.0),)), 3.5),
    # before b, c and d is 1 s, behind them are 2
    "all work before two ops in a row": (
        small(MAKESPAN, [[1.0]] * 6, "ab ac ad be ce de ef", counts=(2,)),
        SharedWork((((0, 1), (1, 2, 3), 1.0),)),
        4.5,
    ),
    "rows of two weights": (FORK, SharedWork((((0, 1), (1, 2, 3), 1.0), ((0,), (0,), 0.0))), 3.5),
    "a device without the ops": (BESIDE, SharedWork((((0,), (0,), 1.0), ((1,), (0,), 5.0))), 1),
    "no row": (FORK, SharedWork(()), 0),
    "rows of no weight": (FORK, SharedWork((((0,), (0,), 0.0),)), 0),
    "two segments": (THREE, Series((1,), ()), 3),
    "three segments": (THREE, Series((0, 2), ()), 3),
    # the longest path takes 3 s, and two devices take 4 s
    "an enumerated segment": (FORK, Series((0, 4), ((1, 0, 0, 4.0),)), 4),
    "an enumerated segment to one device": (FORK, Series((4,), ((0, None, 1, 4.0),)), 4),
    "segments on two kinds": (
        small(MAKESPAN, [[1.0, 2.0], [None, 1.0], [1.0, 3.0]], "ab bc", move_s=[0.0, 5.0]),
        Series((1,), ()),
        6,
    ),
    "an op without a device": (
        small(MAKESPAN, [[1.0, None], [None, 1.0]], together=[0, 0]),
        Series((1,), ()),
        NOTHING_FEASIBLE,
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_bounds_of_makespans_within_the_rules_prove_this(name: str) -> None:
    """The value by hand, to the rounding of claimed seconds."""
    problem, certificate, value = HONEST[name]
    found = proven(ExactProblem.of(problem), certificate)
    assert found == value or float(found) == pytest.approx(float(value), rel=1e-11)


def test_a_segment_that_is_not_enumerated_proves_nothing() -> None:
    """Ten seconds of 4 s, claimed where there are no steps to find out: open, and never as good as proven."""
    claimed = Series((0, 4), ((1, 0, 0, 10.0),))
    exact = ExactProblem.of(FORK)
    with pytest.raises(OpenCertificateError, match="a segment of 5 ops is open"):
        proven(exact, claimed, max_steps=2)
    with pytest.raises(InvalidCertificateError, match="takes less than"):
        proven(exact, claimed)
    solved = pk.solve(FORK, "enumerate")
    told = dataclasses.replace(solved, certificate=Series((0, 4), ((1, 0, 0, 4.0),)), bound_name="series")
    open_one = verify(told, FORK, max_steps=2)["bound"]
    assert (open_one.outcome, "certificate series: a segment of 5 ops is open" in open_one.detail) == ("trusted", True)
    assert verify(told, FORK)["bound"].detail.endswith("by certificate: series")
