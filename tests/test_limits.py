"""Clocks of the tests: what waits costs nothing, and what computes costs its CPU seconds."""

from __future__ import annotations

import subprocess
import sys
import time

from limits import Stopwatch, seconds_to_end


def test_a_process_that_waits_takes_no_seconds() -> None:
    """As one does that has no core because another process has it."""
    assert seconds_to_end(subprocess.Popen(["sleep", "1"])) < 0.5
    watch = Stopwatch()
    time.sleep(0.5)
    assert watch.seconds() < 0.4


def test_a_process_that_computes_takes_its_cpu_seconds() -> None:
    """From when it is asked: what it took before is not counted, nor what others took."""
    code = "import time\nwhile time.process_time() < {}: pass\nprint(flush=True)\nwhile time.process_time() < {}: pass"
    process = subprocess.Popen([sys.executable, "-c", code.format(0.5, 1.0)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    assert 0.3 < seconds_to_end(process) < 0.7
    process.stdout.close()
