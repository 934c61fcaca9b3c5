#!/bin/sh
# Tries this package on a machine with a GPU, and measures it there: in under nine minutes, without
# a network. `make gpu-kit` makes what it installs, build/gpu/; the machine has Python with CUDA's
# torch, torch_geometric, pyarrow, click, tqdm and xxhash.
#
#     sh tools/gpu.sh FOLDER      # FOLDER gets gpu.json (figures), tests.txt and install.txt
#     sh tools/gpu.sh FOLDER --device cpu --nodes 20000 --edges 200000    # more is for benchmarks/loop.py
set -eu
out=${1:?"found no folder for the results, expected one: sh tools/gpu.sh FOLDER"}
shift
root=$(cd "$(dirname "$0")/.." && pwd)
ls "$root"/build/gpu/*.whl >/dev/null || { echo "found no wheel in build/gpu, expected those of make gpu-kit" >&2; exit 1; }
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What the machine has stays as it is; nothing of the checkout but tests and benchmarks is seen.
python3 -m pip install --no-index --no-deps --no-warn-script-location --target "$work/site" \
  "$root"/build/gpu/*.whl >"$out/install.txt" 2>&1 || { cat "$out/install.txt" >&2; exit 1; }
cp -r "$root/tests" "$root/benchmarks" "$root/pyproject.toml" "$work"
cd "$work"
export PYTHONPATH="$work/site:$work/tests:$work/tests/support:$work/benchmarks"
python3 -c "import torch, pyg_graphzero as gz; print(gz.__file__, torch.__version__, *map(torch.cuda.get_device_name, range(torch.cuda.device_count())))" \
  | tee -a "$out/install.txt"

failed=0
timeout 150 python3 -m pytest -q -p no:cacheprovider tests/gpu tests/loader/test_device.py \
  >"$out/tests.txt" 2>&1 || failed=$?
tail -3 "$out/tests.txt"
timeout 330 python3 benchmarks/loop.py --device cuda --nodes 1000000 --edges 15000000 --batches 50 \
  --models sage gcn gat --ways load stock trimmed accelerated --loaders ours stock \
  --features float32 --workers 16 --json "$out/gpu.json" "$@" || failed=$?
exit $failed
