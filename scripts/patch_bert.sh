#!/usr/bin/env bash
# Puts the multi-GPU optimizer into a checkout of Google's BERT (see --help).
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ours=$project/optimization_multigpu.py

usage() {
  cat <<'EOF'
usage: bash scripts/patch_bert.sh PATH_TO_BERT_CHECKOUT
       bash scripts/patch_bert.sh --edits PATH_TO_BERT_CHECKOUT
       bash scripts/patch_bert.sh --revert [--force] PATH_TO_BERT_CHECKOUT

Prepares your own checkout of google-research/bert for several GPUs: puts
optimization_multigpu.py over its optimization.py, keeps the original as
optimization.bak, and prints the edits that remain in each run_*.py, with that
file's line numbers. docs/patching.md explains them.

  --edits   only prints the edits that remain; changes nothing
  --revert  puts optimization.bak back over optimization.py, byte for byte
  --force   with --revert: even if optimization.py has been edited since then
  --help    this text
EOF
}

say() { printf 'patch_bert: %s\n' "$*"; }

fail() {
  say "$*" >&2
  exit 1
}

usage_error() {
  usage >&2
  fail "$*"
}

action=apply
force=false
folder=""
for argument in "$@"; do
  case $argument in
    --help | -h)
      usage
      exit 0
      ;;
    --edits | --revert)
      [[ $action == apply ]] || usage_error "--edits or --revert, and only once"
      action=${argument#--}
      ;;
    --force) force=true ;;
    -*) usage_error "unknown option '$argument'" ;;
    *)
      [[ -z $folder ]] || usage_error "one checkout, not also '$argument'"
      folder=$argument
      ;;
  esac
done
[[ -n $folder ]] || usage_error "the path of the checkout is missing"
if $force && [[ $action != revert ]]; then
  usage_error "--force goes with --revert"
fi

target=$folder/optimization.py
backup=$folder/optimization.bak
run_scripts=("$folder"/run_*.py)

check_checkout() {
  local name
  [[ -d $folder ]] || fail "$folder is not a folder"
  for name in modeling.py optimization.py; do
    [[ -f $folder/$name ]] ||
      fail "$folder is no checkout of Google's BERT: it has no $name"
  done
  # Where no file fits, the pattern itself is the first entry.
  [[ -f ${run_scripts[0]} ]] ||
    fail "$folder is no checkout of Google's BERT: it has no run_*.py"
  grep -q '^def create_optimizer *(' "$target" ||
    fail "$folder is no checkout of Google's BERT: its optimization.py does" \
      "not define create_optimizer"
}

check_not_patched() {
  if cmp -s "$ours" "$target"; then
    fail "$folder is already patched: its optimization.py is" \
      "optimization_multigpu.py (--revert undoes it, --edits prints the edits)"
  fi
  if [[ -e $backup ]] && cmp -s "$backup" "$target"; then
    fail "$backup exists and is the same as optimization.py, as after an" \
      "interrupted run: --revert removes it"
  fi
  if [[ -e $backup || -L $backup ]]; then
    fail "$folder is already patched: $backup exists (--revert puts it back)"
  fi
  [[ ! -L $target ]] ||
    fail "$target is a symbolic link: name the folder that it points into"
}

temporary=""
clean_up() { [[ -z $temporary ]] || rm -rf "$temporary"; }
trap clean_up EXIT

apply() {
  check_checkout
  check_not_patched
  # In the checkout itself, so that each mv is one rename: at any moment
  # optimization.py is one whole file.
  temporary=$(mktemp -d "$folder/.patch_bert.XXXXXX")
  cp -p "$target" "$temporary/optimization.bak"
  cp "$ours" "$temporary/optimization.py"
  mv -f "$temporary/optimization.bak" "$backup"
  mv -f "$temporary/optimization.py" "$target"
  say "$target is optimization_multigpu.py now; the original is $backup."
}

revert() {
  [[ -d $folder ]] || fail "$folder is not a folder"
  [[ -f $backup ]] || fail "nothing to revert: there is no $backup"
  if [[ -e $target ]] && ! $force && ! cmp -s "$ours" "$target" &&
    ! cmp -s "$backup" "$target"; then
    fail "$target is not this project's optimization_multigpu.py: it has been" \
      "edited, or comes from another version. --revert --force throws it away"
  fi
  # One rename: bytes, mode and time of the original are those of the backup.
  mv -f "$backup" "$target"
  say "$target is the original again; $backup is gone."
}

print_edits() {
  local candidate
  for candidate in python3 python; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 6))' \
      2>/dev/null; then
      "$candidate" "$project/scripts/patch_bert.py" "${run_scripts[@]}" ||
        say "the edits could not be listed: see docs/patching.md"
      return
    fi
  done
  say "no Python 3.6 or later on PATH to find the lines of the edits that" \
    "remain: docs/patching.md explains all six"
}

case $action in
  apply)
    apply
    print_edits
    ;;
  edits)
    check_checkout
    print_edits
    ;;
  revert) revert ;;
esac
