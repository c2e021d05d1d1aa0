#!/usr/bin/env bash
# Fine-tunes a small BERT on the sample with two replicas (see --help).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'EOF'
usage: bash scripts/demo.sh [--runtime=tf1|tf2]

Makes the environment if it is not there, trains a two-layer BERT from random
weights on samples/squad with two replicas (two GPUs where there are two, else
on the CPU), answers the dev questions, and prints exact match and F1 beside
those of the same model untrained. Takes about two minutes on two CPU cores,
besides the set-up. Everything goes to output/demo, which is emptied first.

  --runtime=tf1|tf2  TensorFlow 1.15 or 2.15 (default: tf2)
  --help             this text
EOF
}

runtime=tf2
for argument in "$@"; do
  case $argument in
    --help | -h)
      usage
      exit 0
      ;;
    --runtime=tf1 | --runtime=tf2) runtime=${argument#*=} ;;
    *)
      usage >&2
      echo "demo: unknown argument '$argument'" >&2
      exit 1
      ;;
  esac
done

bash scripts/setup.sh "$runtime"
python=.venv/$runtime/bin/python
output=output/demo
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}

devices=(--num_gpus=2 --device_type=cpu)
if [[ $(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true) -ge 2 ]]; then
  devices=(--num_gpus=2)
fi

# Prints the command that is run, so that it can be copied.
run() {
  printf '\ndemo: $'
  printf ' %s' "$@"
  printf '\n'
  "$@"
}

model=(
  "$python" run_squad_multigpu.py "${devices[@]}" --seed=1
  --bert_config_file=samples/squad/bert_config.json
  --vocab_file=samples/squad/vocab.txt
  --max_seq_length=80 --doc_stride=32 --max_query_length=24
  --do_predict=True --predict_file=samples/squad/dev.json
  --predict_batch_size=50
)

rm -rf "$output"
SECONDS=0
run "${model[@]}" --output_dir="$output/random"
run "${model[@]}" --do_train=True --train_file=samples/squad/train.json \
  --train_batch_size=16 --learning_rate=2e-3 --num_train_epochs=8 \
  --output_dir="$output/trained"

echo
"$python" - "$output" <<'EOF'
import json
import os
import sys

output = sys.argv[1]
scores = {}
print("200 dev questions          exact match      F1")
for name, label in (("random", "untrained (random weights)"),
                    ("trained", "trained on 2 replicas")):
  with open(os.path.join(output, name, "eval_results.json")) as reader:
    scores[name] = json.load(reader)
  print("%-26s %11.1f %7.1f" % (
      label, scores[name]["exact"], scores[name]["f1"]))
print("\nanswers and model: %s/trained (predictions.json, "
      "nbest_predictions.json, eval_results.json, model.ckpt-*)" % output)
if scores["trained"]["f1"] < scores["random"]["f1"] + 30:
  sys.exit("demo: the trained model is hardly better than the untrained one: "
           "something is wrong")
EOF
echo "demo: done in $SECONDS s"
