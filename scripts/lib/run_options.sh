# shellcheck shell=bash
# What scripts/run_squad.sh, run_classifier.sh and run_pretraining.sh have in
# common. To be sourced: `project` is the project's folder, `usage` a function.

program=$(basename "$0" .sh)
# Options of all three; each script sets the defaults that depend on its task.
# shellcheck disable=SC2034
runtime=tf2 smoke=false output_dir="" num_gpus="" device_type=""

fail() {
  echo "$program: $*" >&2
  exit 1
}

usage_error() {
  usage >&2
  fail "$*"
}

# Sets the variable with the name of the option "$1", which is --name=value.
set_option() {
  local name=${1%%=*}
  printf -v "${name#--}" %s "${1#*=}"
}

# Fails early, as the set-up may take minutes. Files on other file systems are
# left to the program.
check_file() { # option, file
  [[ $2 == *://* || -f $2 ]] || fail "$1: there is no file $2"
}

# Prints the command that is run, so that it can be copied.
run() {
  printf '\n%s: $' "$program"
  printf ' %q' "$@"
  printf '\n'
  "$@"
}

# The folder and devices of --smoke, by default the folder "$1". The other
# arguments are options that were given and do not go with it.
begin_smoke() {
  local default=$1
  shift
  [[ $# -eq 0 ]] ||
    usage_error "--smoke has its own model and data: leave out $*"
  num_gpus=${num_gpus:-2}
  device_type=${device_type:-cpu}
  if [[ -z $output_dir ]]; then
    output_dir=$default
    rm -rf "$output_dir"
  elif [[ -n $(ls -A "$output_dir" 2>/dev/null) ]]; then
    fail "--output_dir=$output_dir is not empty: --smoke wants a new folder"
  fi
}

# Makes the environment; sets `python`, and `num_gpus` where it was not given.
begin_run() {
  device_type=${device_type:-auto}
  SECONDS=0
  bash "${project:?}/scripts/setup.sh" "$runtime"
  python=$project/.venv/$runtime/bin/python
  export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}
  if [[ -z $num_gpus && $device_type == cpu ]]; then
    num_gpus=1
  elif [[ -z $num_gpus ]]; then
    # Counted as the program itself reads CUDA_VISIBLE_DEVICES.
    num_gpus=$(cd "$project" && "$python" -c '
from multigpu import devices
print(max(1, len(devices.visible_gpus())))')
  fi
}
