"""Memory that a program changes: in place, or by an assignment at its end.

An operator that works in place hands on no value that others read, so that the order is not in the arguments: whoever
reads that memory, by whatever view, comes after the change. What reads memory that was changed under another name has
to be on the device of the change, with all that shows that memory; a change whose result alone is read can be a copy.
A buffer that changes is state, and stays on one device with all that reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

from placekit.pytorch.program import TorchNode, TorchProgram, operator_name


def is_in_place(node: TorchNode) -> bool:
    """Return whether a call changes its first argument: torch marks such operators by a trailing underscore."""
    name = operator_name(node.target)
    return name.endswith("_") and not name.endswith("__")


class Memory:
    """Aliases of tensors, and the last writer of each memory, while a program is walked through.

    Parameters
    ----------
    program
        The program.
    """

    def __init__(self, program: TorchProgram) -> None:
        self._held = dict(program.parameters)  # path by name, of views of parameters, too
        self._base: dict[str, str] = {}
        self._change: dict[str, tuple[str, int]] = {}  # by base: the last change's tensor and op
        self._ops: dict[str, list[int]] = {}  # by base: what makes, shows, reads or changes it
        self._nodes: dict[str, list[int]] = {}  # by base: indices of the nodes that change it
        self._readers: dict[str, list[int]] = {}  # by buffer
        self._changing: set[str] = set()
        self._shared: set[str] = set()

    def change_after(self, tensor: str, op: int) -> str | None:
        """Return the tensor of the last change to `tensor`'s memory, if that came after `op`, which made it."""
        base = self._base.get(tensor, tensor)
        change = self._change.get(base)
        if change is None or change[1] <= op:
            return None
        self._shared.add(base)
        return change[0]

    def called(
        self, index: int, node: TorchNode, op: int, refs: Sequence[str], made: Sequence[str], *, is_view: bool
    ) -> None:
        """Take note of a call: node number `index`, op number `op`, which reads `refs` and makes `made`."""
        for ref in refs:
            self._ops.setdefault(self._base.get(ref, ref), []).append(op)
            if ref in self._held:
                self._readers.setdefault(self._held[ref], []).append(op)
        for each in made:
            self._ops.setdefault(each, []).append(op)
        if not refs or not (is_view or is_in_place(node)):
            return
        base = self._base.get(refs[0], refs[0])
        self._base |= dict.fromkeys(made, base)
        if is_in_place(node):
            self._change[base] = (made[0], op)
            self._nodes.setdefault(base, []).append(index)
            if base in self._held:
                self._changing.add(self._held[base])
                self._shared.add(base)

    def viewed(self, parameter: str, made: Sequence[str]) -> None:
        """Take note of tensors that are views of a parameter."""
        self._base |= dict.fromkeys(made, self._base.get(parameter, parameter))
        self._held |= dict.fromkeys(made, self._held[parameter])

    @property
    def seen_changes(self) -> frozenset[int]:
        """Nodes whose change is read under another name, or stays in a buffer: these have to work in place."""
        return frozenset(node for base in self._shared for node in self._nodes.get(base, ()))

    @property
    def states(self) -> frozenset[str]:
        """Paths of the buffers that are changed in place."""
        return frozenset(self._changing)

    def bound_together(self, assigned: Sequence[tuple[str, int]]) -> list[list[int]]:
        """Return groups of ops that need the same memory, and so one device.

        Parameters
        ----------
        assigned
            Buffer and op of every assignment at the end of the program.
        """
        found = [[op, *self._readers.get(buffer, [])] for buffer, op in assigned]
        found += [self._readers[buffer] for buffer in sorted(self._changing)]
        return found + [self._ops[base] for base in sorted(self._shared) if base not in self._held]
