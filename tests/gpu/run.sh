#!/bin/sh
# Tests on a machine with an NVIDIA GPU, without Rust and without a network: installs the abi3 wheel
# from .wheel/ into a folder of its own, runs the tests marked gpu, leaks by the
# ten thousand, then measures training steps.
# `maturin build --release --out .wheel` makes the wheel, on any machine.
#
#   [PART=first|second|rest] tests/gpu/run.sh [PYTEST ARGUMENTS]
#
# PYTHON is the interpreter with PyTorch and CuPy (default: python3). PART is one of three parts of four to
# seven minutes, for machines that are lent for a short time: the tests of one half of the files, of the
# other half, and the rest.
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

part=${PART:-all}
status=0
check() { "$python" "$@" || status=$?; }
tests() { check -m pytest -q -m gpu -p no:cacheprovider -o faulthandler_timeout=120 "$@"; }
if [ "$part" = all ] || [ "$part" = first ]; then
    tests tests/gpu/test_gpu_[a-i]*.py "$@"
fi
if [ "$part" = all ] || [ "$part" = second ]; then
    tests $(ls tests/gpu/test_gpu_[j-z]*.py | grep -v oom) "$@"
fi
if [ "$part" = all ] || [ "$part" = rest ]; then
    # Memory runs out as it should only where no other test has left anything in the allocator.
    tests tests/gpu/test_gpu_oom.py "$@"
    for kind in tensor tensor-view parameter graph storage; do
        check tests/harmless/memory.py --device cuda --kind $kind --count 50000
    done
    check tests/harmless/memory.py --kind cupy --count 50000
    check benches/gpu_step.py
    check benches/jax_step.py
fi
exit $status
