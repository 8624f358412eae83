"""The runtime ``pipes``: stages of whole blocks on accelerators, told by the first block of every stage."""

from itertools import accumulate

from placekit.language.runtimes.device_names import visible_devices
from placekit.language.runtimes.record import Launch, Placed, Runtime
from placekit.language.runtimes.stages import pipeline


def write(runtime: Runtime, placed: Placed) -> Launch:
    """Return the launch of a plan; `pipeline` refuses what is no chain of whole blocks on accelerators."""
    stages = pipeline(runtime.name, placed)
    starts = list(accumulate(stages.counts, initial=0))[:-1]
    arguments = [runtime.options["starts"], ",".join(map(str, starts)), *runtime.planned(placed.served)]
    devices = stages.by_replica()
    return Launch(runtime, visible_devices(placed.platform, devices, placed.served.cards), tuple(arguments), devices)


PIPES = Runtime(
    name="pipes",
    version="1.2",
    pages=("https://example.org/pipes/serve",),
    # rules
    host="none",
    headroom=0.05,
    chunk=1024,
    goal="throughput",
    kernels="general",
    reserved_bytes=0.5 * 2**30,
    # words
    program="pipes serve {model}",
    options={"starts": "--first-blocks", "context": "--context", "sequences": "--slots"},
    write=write,
    read=None,
    not_searched=("replicas",),
)
