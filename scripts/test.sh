#!/usr/bin/env bash
# Set-up, ruff, mypy and all tests on both runtimes (see --help).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'EOF'
usage: bash scripts/test.sh [--runtime=tf1|tf2] [--quick] [--long]
                            [PYTEST ARGUMENT...]

Makes the environments if they are not there, then runs ruff and mypy (with the
tools of tf2) and pytest on tf1 and tf2. Ends with status 1 if anything fails.

  --runtime=tf1|tf2  only this runtime (tf1: without ruff and mypy)
  --quick            without the tests that are marked slow
  --long             with the tests that take many minutes
  --help             this text

All else goes to pytest: bash scripts/test.sh tests/test_modeling.py -k gelu
EOF
}

runtimes=(tf1 tf2)
pytest_arguments=()
for argument in "$@"; do
  case $argument in
    --help | -h)
      usage
      exit 0
      ;;
    --runtime=tf1 | --runtime=tf2) runtimes=("${argument#*=}") ;;
    --runtime | --runtime=*)
      usage >&2
      echo "test: $argument, wanted --runtime=tf1 or --runtime=tf2" >&2
      exit 1
      ;;
    --quick) pytest_arguments+=(-m "not slow") ;;
    *) pytest_arguments+=("$argument") ;;
  esac
done

failed=()
logs=$(mktemp -d)
background=""

clean_up() {
  [[ -z $background ]] || kill "$background" 2>/dev/null || true
  rm -rf "$logs"
}
trap clean_up EXIT

# Runs a check by the name "$1" and remembers when it fails.
check() {
  local name=$1
  shift
  echo "==> $name"
  "$@" || failed+=("$name")
}

# Becomes pytest on the runtime "$1": for a subshell only, so that a signal sent
# to it reaches pytest.
become_pytest() {
  exec ".venv/$1/bin/python" -m pytest \
    ${pytest_arguments[@]+"${pytest_arguments[@]}"}
}

# The runtime "$1" in the foreground; its output is kept for the summary.
test_here() {
  become_pytest "$1" 2>&1 | tee "$logs/$1"
}

# The end of the run of "$1" that went on in the background, then its output.
test_there() {
  local status=0
  wait "$background" || status=$?
  background=""
  cat "$logs/$1"
  return "$status"
}

export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}
# Two test runs may share one GPU.
export TF_FORCE_GPU_ALLOW_GROWTH=${TF_FORCE_GPU_ALLOW_GROWTH:-true}

bash scripts/setup.sh "${runtimes[@]}"
last=${runtimes[${#runtimes[@]} - 1]}
if [[ ${#runtimes[@]} -eq 2 ]]; then
  # A test process keeps about one core busy: both at once take little longer.
  echo "==> pytest on tf1 has begun in the background"
  become_pytest tf1 >"$logs/tf1" 2>&1 &
  background=$!
fi
if [[ $last == tf2 ]]; then
  check ruff .venv/tf2/bin/python -m ruff check .
  # mypy 1.4 itself warns about a newer typing module.
  check mypy .venv/tf2/bin/python -W ignore -m mypy
fi
check "pytest on $last" test_here "$last"
if [[ ${#runtimes[@]} -eq 2 ]]; then
  check "pytest on tf1" test_there tf1
fi

echo "==> summary"
for runtime in "${runtimes[@]}"; do
  echo "$runtime: $(tail -n 1 "$logs/$runtime")"
done
if [[ ${#failed[@]} -gt 0 ]]; then
  printf 'FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo "all checks passed"
