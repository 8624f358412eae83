#!/usr/bin/env bash
# Build the wheel, install it alone (base dependencies, no torch) in a clean environment, and use it from elsewhere.
# usage: tests/wheel_smoke.sh PYTHON     where PYTHON has the packages of the dev extra
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="$(cd "$(dirname "$1")" && pwd)/$(basename "$1")"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# build from a copy: setuptools leaves build/ and egg-info behind
mkdir "$scratch/source"
# 1: a folder changed meanwhile, as other checks beside this one keep their caches in it
{ tar -C "$root" --exclude=./.venv --exclude=./.git --exclude=./demo --exclude=__pycache__ --exclude='./.*_cache' \
  --exclude=./build --exclude='./*.egg-info' -cf - . || test $? -eq 1; } |
  tar -C "$scratch/source" -xf -
# the wheel is built out of the source distribution, so that both are whole
"$python" -m build --no-isolation --outdir "$scratch/dist" "$scratch/source" >"$scratch/build.log" 2>&1 ||
  { cat "$scratch/build.log"; exit 1; }
# every module of the tree is in it; setuptools would drop a folder without __init__.py silently
(cd "$scratch/source" && find -L placekit -name '*.py') | sort >"$scratch/tree.txt"
"$python" -m zipfile -l "$scratch"/dist/*.whl | awk '$1 ~ /^placekit\/.*\.py$/ {print $1}' | sort >"$scratch/wheel.txt"
diff "$scratch/tree.txt" "$scratch/wheel.txt"
"$python" -m twine check --strict "$scratch"/dist/* >"$scratch/build.log" 2>&1 || { cat "$scratch/build.log"; exit 1; }

"$python" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check -c "$root/constraints.txt" "$scratch"/dist/*.whl

cd "$scratch" # nothing of the source tree is on the path here
export PLACEKIT_CACHE="$scratch/cache"
venv/bin/placekit --help >/dev/null
venv/bin/python - <<'PY'
"""Import every module that the wheel holds, and solve a small problem."""
import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path

import placekit as pk

assert ".venv" not in pk.__file__ and "site-packages" in pk.__file__, pk.__file__
assert importlib.util.find_spec("torch") is None, "the base install must not bring torch"
assert (Path(pk.__file__).parent / "py.typed").is_file()
names = [module.name for module in pkgutil.walk_packages(pk.__path__, "placekit.")]
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:  # only builders of the zoo and learned placers may need their extras
        builds = name.startswith("placekit.zoo.") and error.name in ("torch", "transformers")
        learns = name.startswith("placekit.learned.") and error.name == "torch"
        assert builds or learns, f"{name}: {error}"
assert (Path(pk.__file__).parent / "learned" / "pretrained" / "imitation.pt").is_file()
for name in dir(pk):
    getattr(pk, name)

graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("b", "c")])
costs = pk.CostTable(("cpu",), [[2e-3], [1e-3], [1e-3]], [[0.0], [0.0]], [0, 0, 0])
problem = pk.Problem(graph, pk.Platform.of(cpu=2, host="cpu"), costs)
pk.write_problem(problem, "tiny.problem.json")
result = pk.solve(problem, method="ilp", stop=pk.MaxRuntime(600))
assert (result.objective, str(result.status)) == (2e-3, "optimal"), result
print(f"wheel: {len(names)} modules imported, tiny problem solved on Python {sys.version.split()[0]}")
PY
venv/bin/placekit solve tiny.problem.json >/dev/null
test -s tiny.placement.json && test -s tiny.result.json
venv/bin/placekit show tiny.result.json >/dev/null
if said="$(venv/bin/placekit learn --method hsdag tiny.problem.json 2>&1)"; then
  echo "learn ran without torch"; exit 1
fi
grep -q "placekit\[learned\]" <<<"$said" || { echo "learn without torch says: $said"; exit 1; }
echo "wheel: smoke test passed"
