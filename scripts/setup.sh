#!/usr/bin/env bash
# Makes the virtual environment of a runtime in .venv/ (see --help).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

usage() {
  cat <<'EOF'
usage: bash scripts/setup.sh [--build=auto|cpu|gpu] RUNTIME...

Makes .venv/RUNTIME for each RUNTIME named:
  tf1   Python 3.7, tensorflow-gpu 1.15
  tf2   Python 3.9 to 3.11, TensorFlow 2.15

Nothing happens where the environment is there and the files in requirements/
have not changed. The Python is looked for on PATH and in ~/.pyenv; where none
fits, uv (a Python package) is asked to get one.

  --build=auto  tf2 only: the GPU build where an NVIDIA GPU is, else the CPU
                build (default; an existing GPU build stays)
  --build=cpu   tf2 only: the CPU build
  --build=gpu   tf2 only: the GPU build, also on a machine without a GPU
  --help        this text
EOF
}

say() { printf 'setup: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

# Prints the real path of the interpreter "$1" if it is Python "$2". A name on
# PATH says nothing: pyenv's shims exist for versions that are switched off.
real_python() {
  "$1" -c '
import sys
if "%d.%d" % sys.version_info[:2] != sys.argv[1]:
  sys.exit(1)
print(sys.executable)' "$2" 2>/dev/null
}

# Prints the first interpreter of one of the versions "$@".
find_python() {
  local version candidate
  for version in "$@"; do
    while IFS= read -r candidate; do
      if [[ -x $candidate ]] && real_python "$candidate" "$version"; then
        return 0
      fi
    done < <(
      type -aP "python$version" || true
      printf '%s\n' "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/$version".*/bin/python3
      type -aP python3 python || true
    )
  done
  return 1
}

# Prints the path of uv: the machine's own, or a copy from pip in .venv/tools.
find_uv() {
  local python
  type -P uv && return 0
  if [[ ! -x $root/.venv/tools/bin/uv ]]; then
    for python in python3 python; do
      type -P "$python" >/dev/null || continue
      "$python" -m pip install --quiet --disable-pip-version-check \
        --target "$root/.venv/tools" uv >&2 && break
    done
  fi
  [[ -x $root/.venv/tools/bin/uv ]] && echo "$root/.venv/tools/bin/uv"
}

# Prints an interpreter of version "$1" that uv has or downloads.
fetch_python() {
  local uv
  uv=$(find_uv) || return 1
  say "no Python $1 here, asking uv for one"
  export UV_PYTHON_INSTALL_DIR=$root/.venv/python
  "$uv" python install "$1" >&2 || return 1
  "$uv" python find "$1"
}

# Makes an empty environment "$2" from the interpreter "$1".
make_venv() {
  local uv
  rm -rf "$2"
  "$1" -m venv "$2" >/dev/null 2>&1 && return 0
  # Debian's Python has no ensurepip without the package python3-venv.
  rm -rf "$2"
  uv=$(find_uv) && "$uv" venv --quiet --seed --python "$1" "$2"
}

has_gpu() {
  [[ -e /dev/nvidia0 || $(nvidia-smi -L 2>/dev/null || true) == GPU* ]]
}

# Prints which file in requirements/ (without .txt) the runtime "$1" takes; "$2"
# is what was installed before.
requirements_of() {
  if [[ $1 == tf1 ]]; then
    echo tf1
  elif [[ $build != auto ]]; then
    echo "$1-$build"
  elif [[ $2 == "$1-gpu" ]] || has_gpu; then
    echo "$1-gpu"
  else
    echo "$1-cpu"
  fi
}

install_packages() { # runtime, requirements file, environment
  local log
  say "installing requirements/$2.txt into .venv/$1 (some minutes)"
  "$3/bin/python" -m pip install --quiet --disable-pip-version-check \
    -r "requirements/$2.txt" -c "requirements/$1.lock" ||
    fail "pip could not install requirements/$2.txt: see its message above"
  log=$("$3/bin/python" -c 'import tensorflow.compat.v1' 2>&1) ||
    fail "TensorFlow is installed but does not import: $log"
}

# Prints an interpreter for the runtime "$1", found or fetched.
python_for() {
  local versions=(3.11 3.10 3.9)
  [[ $1 == tf1 ]] && versions=(3.7)
  find_python "${versions[@]}" && return 0
  fetch_python "${versions[0]}" && return 0
  fail "runtime $1 needs Python ${versions[*]} and none was found or could be" \
    "downloaded. Install one (for example 'pyenv install ${versions[0]}') and" \
    "run this again."
}

set_up() { # runtime
  local venv=$root/.venv/$1 stamp before="" requirements wanted python
  stamp=$venv/setup-stamp
  # The stamp is written last: an environment without one is half made.
  [[ -f $stamp ]] && before=$(<"$stamp")
  requirements=$(requirements_of "$1" "${before%% *}")
  wanted="$requirements $(cat requirements/"${1}"*.txt \
    "requirements/$1.lock" | cksum)"
  if ! "$venv/bin/python" -c '' 2>/dev/null; then
    before=""
  fi
  if [[ $before == "$wanted" ]]; then
    say ".venv/$1 is ready"
    return 0
  fi
  if [[ ${before%% *} != "$requirements" ]]; then
    python=$(python_for "$1")
    say "making .venv/$1 with $python"
    make_venv "$python" "$venv" ||
      fail "$python cannot make a virtual environment: install its venv" \
        "module (Debian: apt-get install python3-venv)"
  fi
  rm -f "$stamp"
  install_packages "$1" "$requirements" "$venv"
  printf '%s\n' "$wanted" >"$stamp"
  say ".venv/$1 is ready"
}

build=auto
runtimes=()
for argument in "$@"; do
  case $argument in
    --help | -h)
      usage
      exit 0
      ;;
    --build=auto | --build=cpu | --build=gpu) build=${argument#*=} ;;
    tf1 | tf2) runtimes+=("$argument") ;;
    *)
      usage >&2
      fail "unknown argument '$argument', wanted tf1 or tf2"
      ;;
  esac
done
if [[ ${#runtimes[@]} -eq 0 ]]; then
  usage >&2
  fail "name a runtime: tf1 or tf2"
fi

mkdir -p "$root/.venv"
# Two set-ups at once would write into each other's environment.
exec 9>"$root/.venv/lock"
if type -P flock >/dev/null && ! flock -n 9; then
  say "another set-up is running, waiting for it"
  flock 9
fi
for runtime in "${runtimes[@]}"; do
  set_up "$runtime"
done
