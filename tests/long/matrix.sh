#!/usr/bin/env bash
# Runs the Python tests and the score over all fixtures on each CPython that the wheel is for, with
# NumPy in place of PyTorch; if TORCH is set, the tests that import PyTorch, with the newest there is
# for each (several GB).
#
# Interpreters come from PYTHONS (separated as in PATH), the PATH, pyenv and uv. VERSIONS is which
# to run on, all by default.
#
# usage: [TORCH=1] [VERSIONS="3.14 3.15"] [PYTHONS=...] tests/long/matrix.sh WHEEL
set -euo pipefail
cd "$(dirname "$0")/../.."
wheel=$1

# The interpreters that there may be of one version, in the order in which they are tried.
candidates() {
    local version
    tr ':' '\n' <<<"${PYTHONS:-}"
    echo "python$1"
    if command -v pyenv >/dev/null; then
        while read -r version; do
            echo "$(pyenv prefix "$version")/bin/python"
        done < <(pyenv versions --bare | grep -E "^${1/./\\.}\.[0-9]+$" || true)
    fi
    if command -v uv >/dev/null; then
        uv python find --no-project --no-python-downloads "$1" 2>/dev/null || true
    fi
}

# One of a version that can make virtual environments, with the global interpreter lock.
find_python() {
    local candidate
    local is_it="import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$1' or
        not getattr(sys, '_is_gil_enabled', lambda: True)())"
    while read -r candidate; do
        if [[ -n $candidate ]] && "$candidate" -c "$is_it" 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done < <(candidates "$1")
    return 1
}

# An older one cannot install for Python 3.15.
.venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=26.1'
passed=() failed=() skipped=()
[[ -n ${TORCH:-} ]] && files=with || files=without
for version in ${VERSIONS:-3.10 3.11 3.12 3.13 3.14 3.15}; do
    if ! python=$(find_python "$version"); then
        skipped+=("$version")
        continue
    fi
    echo "== Python $version ($python)"
    venv=.venvs/$version${TORCH:+-torch}
    # Not every interpreter has `ensurepip`, so the pip here installs for all.
    [[ -x $venv/bin/python ]] || "$python" -m venv --without-pip "$venv"
    pip=(.venv/bin/python -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check)
    "${pip[@]}" -r requirements/matrix.txt
    # PyTorch's debug server needs what it does not ask for.
    [[ -z ${TORCH:-} ]] || "${pip[@]}" torch tabulate jinja2 aiohttp
    "${pip[@]}" --force-reinstall --no-deps "$wheel"
    # The page and types are the same on all versions; `make test` is about them. What the score says of each fixture is
    # said once. Without PyTorch, its fixtures are left out, and a page of the documentation that is about it.
    if PYTHONPATH=tests:fixtures "$venv/bin/python" -m support.scoring &&
        "$venv/bin/python" -m pytest -q -m "not gpu and not long" --frameworks=$files \
            -n auto --maxprocesses 8 --dist loadfile \
            -p no:cacheprovider --ignore tests/page --ignore-glob 'tests/device/test_device*.py' \
            --ignore tests/watch/test_distributed.py --ignore tests/python/test_integrations.py \
            --ignore tests/watch/test_loader_workers.py --ignore tests/python/test_typing.py \
            --deselect tests/analysis/test_scoring.py::test_fixture_passes \
            --deselect 'tests/python/test_documentation.py::test_code_compiles_and_names_what_there_is[training.md]'; then
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
