"""Modules that take seconds to import, because of the packages behind them, while the caller need not wait.

An import cannot be interrupted, and on a busy machine OR-Tools takes five seconds. So it happens in a thread of its
own, and is waited for only as long as :mod:`placekit.patience` says; whoever asks next finds the module there.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from importlib import import_module

from placekit.errors import KernelsPendingError
from placekit.patience import is_patient

__all__ = ["wait_for_module"]

POLL_S = 0.02
"""Seconds between two looks at whether waiting is still worth it."""

_loads: dict[str, Future[None]] = {}
_lock = threading.Lock()


def wait_for_module(name: str) -> None:
    """Have the module `name` imported, so that an import statement takes no time.

    Raises
    ------
    KernelsPendingError
        Waiting is not worth it any more; the import goes on.
    ImportError
        There is no such module, or a package that it needs is missing.
    """
    go_on = is_patient()
    if go_on is None:
        import_module(name)
        return
    with _lock:
        load = _loads.get(name)
        if load is None:
            load = _loads[name] = Future()
            threading.Thread(target=_load, args=(name, load), name=f"load {name}", daemon=True).start()
    while not wait([load], POLL_S).done:
        if not go_on():
            raise KernelsPendingError(f"module {name!r} is still being imported", load.done)
    load.result()


def _load(name: str, load: Future[None]) -> None:
    try:
        import_module(name)
        load.set_result(None)
    except BaseException as error:  # for whoever asked
        load.set_exception(error)
