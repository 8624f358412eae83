#!/usr/bin/env bash
# Build the wheel, install it alone in a clean environment, with the solvers later, and use it from elsewhere.
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

install() {
  "$scratch/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check -c "$root/constraints.txt" "$@"
}
"$python" -m venv "$scratch/venv"
install "$scratch"/dist/*.whl

cd "$scratch" # nothing of the source tree is on the path here
export PLACEKIT_CACHE="$scratch/cache"
venv/bin/placekit --help >/dev/null
venv/bin/placekit llm llama3-8b --cards "RTX 4090, RTX 3060" --ram "96 GB DDR5-5600 x2" --for llama.cpp \
  -o llm.placement.json >llm.txt # not into grep -q, which closes the pipe at the first match
grep -q llama-server llm.txt
venv/bin/placekit verify llm.result.json >/dev/null
echo '[{"model": "llama3-8b", "cards": "RTX 4090", "runtime": "llama.cpp"}]' >questions.json
venv/bin/placekit page questions.json --static site >/dev/null
grep -q llama-server site/answers.js && test -s site/page.js
venv/bin/placekit train-plan 7b --accelerator a100-80gb --devices 8 >/dev/null
install "$(echo "$scratch"/dist/*.whl)[solvers]"
venv/bin/python - <<'PY'
"""Import every module that the wheel holds, and solve a small problem."""
import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path

import placekit as pk
from placekit.io.needs import EXTRA_OF

assert ".venv" not in pk.__file__ and "site-packages" in pk.__file__, pk.__file__
missing = {name for name, extra in EXTRA_OF.items() if extra != "solvers"}
assert all(importlib.util.find_spec(name) is None for name in missing), "only the solvers are to be there"
assert (Path(pk.__file__).parent / "py.typed").is_file()
names = [module.name for module in pkgutil.walk_packages(pk.__path__, "placekit.")]
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert error.name in missing, f"{name}: {error}"
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
