#!/usr/bin/env bash
# Starts one training command on several hosts at once (see --help).
set -euo pipefail

usage() {
  cat <<'EOT'
usage: bash scripts/launch_hosts.sh [options] HOST1 HOST2 ... -- COMMAND

Runs COMMAND on all hosts at once, each with its own TF_CONFIG, so that they
train together. HOST1 is the chief: it writes checkpoints and results. Prefixes
each line of output with the host it is from. When one host fails, ends all of
them, and returns its status; 0 when all have succeeded.

localhost, and this machine's own name, are started without ssh; the others
must be reached by ssh without a password, and must have COMMAND's files at the
same paths. A host that is named twice runs two tasks: that is for the CPU, as
both would take the same GPUs.

  --port=PORT  port of a host's first task, free on all hosts (default: 2222);
               a second task on it has the next one
  --dir=DIR    where to run COMMAND (default: this folder)
  --ssh=SSH    the ssh command (default: "ssh -o BatchMode=yes")
  --help       this text

Two machines with 8 GPUs each:
  bash scripts/launch_hosts.sh node1 node2 -- .venv/tf2/bin/python \
    run_squad_multigpu.py --num_gpus=8 --output_dir=/shared/output ...
A trial on this machine:
  bash scripts/launch_hosts.sh localhost localhost -- .venv/tf2/bin/python \
    run_squad_multigpu.py --device_type=cpu ...
EOT
}

fail() {
  echo "launch_hosts: $*" >&2
  exit 1
}

port=2222 dir=$PWD ssh="ssh -o BatchMode=yes"
hosts=()
while [[ $# -gt 0 && $1 != -- ]]; do
  case $1 in
    --help | -h)
      usage
      exit 0
      ;;
    --port=*) port=${1#*=} ;;
    --dir=*) dir=${1#*=} ;;
    --ssh=*) ssh=${1#*=} ;;
    -*)
      usage >&2
      fail "unknown option '$1'"
      ;;
    *) hosts+=("$1") ;;
  esac
  shift
done
[[ ${#hosts[@]} -gt 0 ]] || fail "no hosts: see --help"
[[ $# -gt 1 ]] || fail "no command: write it after --, see --help"
[[ $port =~ ^[1-9][0-9]*$ ]] || fail "--port=$port, wanted a number"
shift

is_here() {
  [[ $1 == localhost || $1 == 127.0.0.1 || $1 == "$(hostname)" ||
    $1 == "$(hostname -f 2>/dev/null)" ]]
}

# "user@node" is for ssh alone.
addresses=() names=()
for host in "${hosts[@]}"; do
  if [[ $host == localhost || $host == 127.0.0.1 ]]; then
    for other in "${hosts[@]}"; do
      is_here "$other" ||
        fail "$other cannot reach this machine as '$host': give its own name"
    done
  fi
  next=$port name=${host#*@}
  for address in ${addresses[@]+"${addresses[@]}"}; do
    [[ ${address%:*} != "$name" ]] || next=$((next + 1))
  done
  addresses+=("$name:$next")
  names+=("$name$([[ $next == "$port" ]] || echo ":$next")")
done

# TF_CONFIG of the task number $1.
tf_config() {
  local workers="" type=chief index=0 i
  for ((i = 1; i < ${#addresses[@]}; i++)); do
    workers+="${workers:+, }\"${addresses[i]}\""
  done
  if [[ $1 -gt 0 ]]; then
    type=worker index=$(($1 - 1))
  fi
  printf '{"cluster": {"chief": ["%s"]%s}, "task": {"type": "%s", "index": %d}}' \
    "${addresses[0]}" "${workers:+, \"worker\": [$workers]}" "$type" "$index"
}

# Runs on each host. Its stdin is open as long as this script lives, however
# that ends; then the command is ended too.
# shellcheck disable=SC2016
guard='
exec 3<&0
cd "$1" || exit
export TF_CONFIG=$2
shift 2
"$@" </dev/null 3<&- &
command=$!
{ cat <&3 >/dev/null; kill "$command"; sleep 40; kill -9 "$command"; } \
  >/dev/null 2>&1 &
guard=$!
status=0
wait "$command" || status=$?
kill "$guard"
exit "$status"'

# For the shell of another machine, whichever that is.
quote() {
  local word
  for word in "$@"; do
    printf "'%s' " "${word//\'/\'\\\'\'}"
  done
}

# Starts the task number $1; the rest is the command.
start() {
  local host=${hosts[$1]} line
  line=(bash -c "$guard" guard "$dir" "$(tf_config "$1")" "${@:2}")
  if is_here "$host"; then
    "${line[@]}"
  else
    # shellcheck disable=SC2086  # an option of ours, with arguments
    $ssh "$host" "$(quote "${line[@]}")"
  fi
}

folder=$(mktemp -d)
mkfifo "$folder/alive"
exec 9<>"$folder/alive"
exec 8<"$folder/alive"
rm -r "$folder"
tasks=()
for ((i = 0; i < ${#hosts[@]}; i++)); do
  (
    exec <&8 8<&- 9>&-
    start "$i" "$@" 2>&1 | sed -u "s|^|[${names[i]}] |"
  ) &
  tasks+=($!)
done
exec 8<&-
trap 'exec 9>&-; wait; exit 130' INT
trap 'exec 9>&-; wait; exit 143' TERM

# Waits for all; the first that fails sets the status and the deadline.
status=0 deadline=0
while [[ ${#tasks[@]} -gt 0 ]]; do
  left=()
  for i in "${!tasks[@]}"; do
    if kill -0 "${tasks[i]}" 2>/dev/null; then
      left[i]=${tasks[i]}
      continue
    fi
    result=0
    wait "${tasks[i]}" || result=$?
    if [[ $result != 0 && $status == 0 ]]; then
      status=$result
      # The others notice it themselves, and say so.
      deadline=$((SECONDS + 20))
      echo "launch_hosts: ${names[i]} ended with status $result" >&2
    fi
  done
  tasks=()
  for i in "${!left[@]}"; do
    tasks[i]=${left[i]}
  done
  if [[ $status != 0 && $SECONDS -ge $deadline ]]; then
    exec 9>&-
  fi
  sleep 0.2
done
exit "$status"
