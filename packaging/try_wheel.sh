# Installs a wheel of ../dist into a bare system and runs tests on it: sh try_wheel.sh, in a container or elsewhere.
# $PYTHON is the interpreter; AlmaLinux and Alpine get one if there is none. $DIST: where the wheels are.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
PYTHON=${PYTHON:-python3}
if ! command -v "$PYTHON" >/dev/null; then
    dnf install -y -q "$PYTHON"
fi
# Compiled packages come as wheels only: there is no compiler here.
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
"$PYTHON" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --only-binary :all: -r "$here/requirements/matrix.txt"
"$venv/bin/python" -m pip install --quiet --no-index --no-deps --find-links "${DIST:-$here/dist}" cyclescope
cp -r "$here/tests" "$here/fixtures" "$here/pyproject.toml" "$venv"
cd "$venv"
bin/python -c 'import cyclescope; print(cyclescope.__version__, cyclescope.__file__)'
bin/python -m cyclescope doctor
bin/python -m pytest -q -m "not gpu and not long" -p no:cacheprovider tests/collector tests/capture tests/analysis
