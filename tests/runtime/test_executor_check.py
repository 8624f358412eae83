"""The way of running that was chosen has to give what the stages give one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import openvino as ov
import pytest
from pipelines import random_plan

from placekit.io.models.model import ModelSource
from placekit.model.errors import OutputMismatchError
from placekit.runtime import output_check
from placekit.runtime.output_check import require_equal_outputs
from placekit.runtime.stages.plans import compile_plan
from placekit.runtime.timing.contenders import Executor

Saved = Callable[[ov.Model], ModelSource]


@pytest.mark.parametrize("executor", ["serial", "threads"])
def test_every_executor_gives_what_the_model_gives(
    saved: Saved, make_convnet: Callable[[], ov.Model], executor: Executor
) -> None:
    """A random placement of a small network, and the tensors between its stages are in the report."""
    found = require_equal_outputs(compile_plan(random_plan(saved(make_convnet()), 1)), executor)
    assert found.max_relative_error <= 1e-5
    assert found.cuts


def test_executor_that_gives_something_else_is_named(
    saved: Saved, make_convnet: Callable[[], ov.Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stages are right and the pipeline is not: the error says which."""
    compiled = compile_plan(random_plan(saved(make_convnet()), 1))

    @contextmanager
    def broken(*_: Any) -> Iterator[Any]:
        yield lambda _: {name: np.zeros((1, 4, 32, 32), dtype=np.float32) for name in compiled.plan.output_names}

    monkeypatch.setattr(output_check, "Pipeline", broken)
    with pytest.raises(OutputMismatchError, match=r"output '\w+' differs by .* with executor threads; with the stages"):
        require_equal_outputs(compiled, "threads")
