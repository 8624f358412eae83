"""The exceptions that placekit raises, all under one base.

A message names the object, the value and the bound, for example
``op 'conv1' has time -1.0 s on kind 'gpu'; times must be finite and >= 0``.
The command line turns every :class:`PlacekitError` into one line and exit code 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

LONGEST_MESSAGE = 4000
"""Characters: messages quote values, and a value from a file may be of any length."""


class PlacekitError(Exception):
    """Base of every error that placekit raises on purpose; the middle of a message that is too long is left out.

    Examples
    --------
    >>> len(str(PlacekitError("op " + "x" * 1_000_000 + " has no device"))) <= LONGEST_MESSAGE
    True
    """

    def __init__(self, message: str = "") -> None:
        if len(message) > LONGEST_MESSAGE:
            end = LONGEST_MESSAGE // 2 - 20
            message = f"{message[:end]} ... ({len(message)} characters) ... {message[-end:]}"[:LONGEST_MESSAGE]
        super().__init__(message)


class InvalidGraphError(PlacekitError, ValueError):
    """An :class:`~placekit.model.graph.OpGraph` that is no computation graph (a cycle, a duplicate name, ...)."""


class InvalidProblemError(PlacekitError, ValueError):
    """A platform, cost table, placement or problem whose parts are wrong or do not fit together."""


class UnknownParameterError(InvalidProblemError):
    """A parameter that a method does not have; the message lists those it has."""


class NoRoomError(InvalidProblemError):
    """A device whose memory is too small for the `taken_bytes` of a step alone; `device` is its name."""

    def __init__(self, message: str, device: str = "", taken_bytes: float = 0.0) -> None:
        super().__init__(message)
        self.device, self.taken_bytes = device, taken_bytes


class InvalidFileError(PlacekitError, ValueError):
    """A file that cannot be read as what it is said to be; the message names the file and the place."""


class InvalidCertificateError(PlacekitError, ValueError):
    """A certificate that is not of the problem, or that breaks the rules of its kind."""


class UnknownNameError(PlacekitError, LookupError):
    """A method, device, objective or zoo model that does not exist; the message lists those that do."""


class UnsupportedProblemError(PlacekitError, ValueError):
    """A method was asked for a problem outside its scope; the message says which part."""


class SolverUnavailableError(PlacekitError, ImportError):
    """A method needs a package that is not installed; the message gives the install line."""


class PluginError(PlacekitError, ImportError):
    """A plugin of an installed package cannot be used; the message names the package."""


class DeviceUnavailableError(PlacekitError, RuntimeError):
    """A device that this machine does not offer was asked to run or to be measured."""


class ProfileError(PlacekitError, RuntimeError):
    """A measurement that failed, or that was too disturbed by other load to be believed."""


class ProgramTooLargeError(PlacekitError, RuntimeError):
    """A program that there is no time left to build, or no memory; the message says how large it is and what is left.

    Raised inside of solves only, which go on with what fits, or end with what they have.
    """

    def __init__(self, message: str, *, lacks_memory: bool) -> None:
        super().__init__(message)
        self.lacks_memory = lacks_memory


class JudgeDisagreementError(PlacekitError, RuntimeError):
    """A method's own objective or bound contradicts the judge: a bug in placekit, please report it."""


class ExecutionError(PlacekitError, RuntimeError):
    """A placement that could not be compiled or run; the message names the stage and, where known, the op."""


class OutputMismatchError(PlacekitError, RuntimeError):
    """A placement that computes something else than the model on one device; names the first differing tensor."""


def check_names(
    option: str,  # the option, for the message
    wanted: Iterable[str],  # the names that were given
    known: Iterable[object],  # the names that there are
    matches: Callable[[str, str], bool] = str.__eq__,  # whether a given name means a known one; equality by default
) -> None:
    """Refuse an option that names nothing.

    Raises
    ------
    UnknownNameError
        A name that means none of `known`; the message lists those.

    Examples
    --------
    >>> check_names("--method", ["greedy"], ["ilp", "hsdag"])
    Traceback (most recent call last):
        ...
    placekit.model.errors.UnknownNameError: --method 'greedy': there is none here; there are hsdag, ilp
    """
    names = sorted({str(name) for name in known})
    for each in wanted:
        if not any(matches(each, name) for name in names):
            there = ", ".join(names) if names else "none at all"
            raise UnknownNameError(
                f"{option} {each!r}: there is none here; there are {there}{did_you_mean(each, names)}"
            )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'X'?"`` for the name in `known` that `name` is likely a misspelling of, else ``""``.

    Examples
    --------
    >>> did_you_mean("hsdagg", ["ilp", "hsdag"])
    "; did you mean 'hsdag'?"
    >>> did_you_mean("gurobi", ["ilp", "hsdag"])
    ''
    """
    from difflib import get_close_matches  # only when something went wrong

    found = get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""
