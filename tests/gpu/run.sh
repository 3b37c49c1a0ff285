#!/bin/sh
# Tests on a machine with an NVIDIA GPU, without Rust and without a network: installs the abi3 wheel
# from .wheel/ into a folder of its own, runs the tests marked gpu, leaks by the
# ten thousand, then measures training steps.
# `maturin build --release --out .wheel` makes the wheel, on any machine.
#
#   tests/gpu/run.sh [PYTEST ARGUMENTS]
#
# PYTHON is the interpreter with PyTorch and CuPy (default: python3).
set -eu
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}

wheels=$(ls .wheel/cyclescope-*-abi3-*.whl 2>/dev/null || true)
case $(printf '%s\n' "$wheels" | grep -c .) in
1) ;;
0) echo "run.sh: no abi3 wheel in .wheel/; build one: maturin build --release --out .wheel" >&2 && exit 2 ;;
*) echo "run.sh: more than one wheel in .wheel/; leave one:" "$wheels" >&2 && exit 2 ;;
esac

target=$(mktemp -d "${TMPDIR:-/tmp}/cyclescope-gpu.XXXXXX")
trap 'rm -rf "$target"' EXIT
"$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$target" "$wheels"
export PYTHONPATH="$target${PYTHONPATH:+:$PYTHONPATH}"
"$python" -c 'import cyclescope, torch; print(cyclescope.__file__, torch.__version__, torch.cuda.get_device_name())'

status=0
# Memory runs out as it should only where no other test has left anything in the allocator.
"$python" -m pytest tests/gpu -q -m gpu -p no:cacheprovider -o faulthandler_timeout=120 \
    --ignore tests/gpu/test_gpu_oom.py "$@" || status=$?
"$python" -m pytest tests/gpu/test_gpu_oom.py -q -m gpu -p no:cacheprovider -o faulthandler_timeout=120 "$@" || status=$?
for kind in tensor tensor-view parameter graph storage; do
    "$python" tests/harmless/memory.py --device cuda --kind $kind --count 50000 || status=$?
done
"$python" tests/harmless/memory.py --kind cupy --count 50000 || status=$?
"$python" benches/gpu_step.py || status=$?
"$python" benches/jax_step.py || status=$?
exit $status
