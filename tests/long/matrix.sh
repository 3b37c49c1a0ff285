#!/usr/bin/env bash
# Runs the Python tests and the score over all fixtures on each CPython that the wheel is for, with
# NumPy in place of PyTorch; with PyTorch (several GB for each version) if TORCH is set.
#
# usage: [TORCH=1] tests/long/matrix.sh WHEEL
set -euo pipefail
cd "$(dirname "$0")/../.."
wheel=$1

# The interpreter of one version, from the PATH or from pyenv.
find_python() {
    local candidates=("python$1") version
    if command -v pyenv >/dev/null; then
        while read -r version; do
            candidates+=("$(pyenv prefix "$version")/bin/python")
        done < <(pyenv versions --bare | grep -E "^${1/./\\.}\.[0-9]+$" || true)
    fi
    for candidate in "${candidates[@]}"; do
        if "$candidate" -c 'import venv' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

passed=() failed=() skipped=()
for version in 3.10 3.11 3.12 3.13; do
    if ! python=$(find_python "$version"); then
        skipped+=("$version")
        continue
    fi
    echo "== Python $version ($python)"
    venv=.venvs/$version${TORCH:+-torch}
    [[ -x $venv/bin/python ]] || "$python" -m venv "$venv"
    pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
    "${pip[@]}" -r requirements/matrix.txt
    [[ -z ${TORCH:-} ]] || "${pip[@]}" "$(grep ^torch== requirements/test.txt)"
    "${pip[@]}" --force-reinstall --no-deps "$wheel"
    # The page, PyTorch, what is built on it, and types are the same on all versions; `make test`
    # is about them. What the score says of each fixture is said once.
    if PYTHONPATH=tests:fixtures "$venv/bin/python" -m support.scoring &&
        "$venv/bin/python" -m pytest -q -m "not gpu and not long" \
            -n auto --maxprocesses 8 --dist loadfile \
            -p no:cacheprovider --ignore tests/page --ignore-glob 'tests/device/test_device*.py' \
            --ignore tests/watch/test_distributed.py --ignore tests/python/test_integrations.py \
            --ignore tests/watch/test_loader_workers.py --ignore tests/python/test_typing.py \
            --deselect tests/analysis/test_scoring.py::test_fixture_passes; then
        passed+=("$version")
    else
        failed+=("$version")
    fi
done

echo
echo "passed: ${passed[*]:-none}"
echo "failed: ${failed[*]:-none}"
echo "skipped, not installed: ${skipped[*]:-none}"
[[ ${#failed[@]} == 0 && ${#passed[@]} != 0 ]]
