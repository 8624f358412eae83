"""Memory that a program changes: in place, or by an assignment at its end.

An operator that works in place hands on no value that others read, so that the order is not in the arguments: whoever
reads that memory, by whatever view, comes after the change. A buffer that changes is state, and stays on one device
with all that reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

from placekit.pytorch.program import TorchNode, TorchProgram, operator_name

__all__ = ["Memory", "is_in_place"]


def is_in_place(node: TorchNode) -> bool:
    """Return whether a call changes its first argument: torch marks such operators by a trailing underscore."""
    name = operator_name(node.target)
    return name.endswith("_") and not name.endswith("__")


class Memory:
    """Which tensors are one memory, and who changed it last, as a program is walked through.

    Parameters
    ----------
    program
        The program.
    """

    def __init__(self, program: TorchProgram) -> None:
        self._held = dict(program.parameters)  # path by name, of views of parameters, too
        self._base: dict[str, str] = {}
        self._change: dict[str, tuple[str, int]] = {}  # by base: the last change's tensor and op
        self._readers: dict[str, list[int]] = {}  # by buffer
        self._changing: set[str] = set()

    def change_after(self, tensor: str, op: int) -> str | None:
        """Return the tensor of the last change to `tensor`'s memory, if that came after `op`, which made it."""
        change = self._change.get(self._base.get(tensor, tensor))
        return change[0] if change is not None and change[1] > op else None

    def called(self, node: TorchNode, op: int, refs: Sequence[str], made: Sequence[str], *, is_view: bool) -> None:
        """Take note of a call: op number `op`, which reads `refs` and makes `made`."""
        for ref in refs:
            if ref in self._held:
                self._readers.setdefault(self._held[ref], []).append(op)
        if not refs or not (is_view or is_in_place(node)):
            return
        base = self._base.get(refs[0], refs[0])
        self._base |= dict.fromkeys(made, base)
        if is_in_place(node):
            self._change[base] = (made[0], op)
            if base in self._held:
                self._changing.add(self._held[base])

    def viewed(self, parameter: str, made: Sequence[str]) -> None:
        """Take note of tensors that are views of a parameter."""
        self._base |= dict.fromkeys(made, self._base.get(parameter, parameter))
        self._held |= dict.fromkeys(made, self._held[parameter])

    def states(self, assigned: Sequence[tuple[str, int]]) -> list[list[int]]:
        """Return the ops that share a state, for each.

        Parameters
        ----------
        assigned
            Buffer and op of every assignment at the end of the program.
        """
        found = [[op, *self._readers.get(buffer, [])] for buffer, op in assigned]
        return found + [self._readers[buffer] for buffer in sorted(self._changing)]
