#!/usr/bin/env bash
# Fine-tunes BERT on SQuAD on all GPUs and answers the dev set (see --help).
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  cat <<'EOF'
usage: bash scripts/run_squad.sh --bert_dir=DIR --data_dir=DIR [OPTION...]
                                 [-- FLAG...]
       bash scripts/run_squad.sh --smoke [OPTION...] [-- FLAG...]

Fine-tunes BERT on SQuAD, answers the dev set and prints exact match and F1.
Makes the environment if it is not there and prints the command that it runs.

  --bert_dir=DIR         vocab.txt, bert_config.json and bert_model.ckpt
  --data_dir=DIR         train-v1.1.json and dev-v1.1.json, or -v2.0.json
  --train_file=FILE      another file to train on
  --predict_file=FILE    another file to answer
  --version=1.1|2.0      2.0: some questions have no answer (default: 1.1)
  --do_lower_case=True|False  False for cased models (default: True)
  --learning_rate=X      default: 3e-5
  --num_train_epochs=X   default: 2
  --max_seq_length=N     default: 384
  --doc_stride=N         default: 128
  --train_batch_size=N   rows per GPU (default: 12, for BERT-Base on 12 GB)

  --output_dir=DIR       default: output/squad. A run goes on from the newest
                         checkpoint in it
  --num_gpus=N           default: all GPUs that CUDA_VISIBLE_DEVICES leaves, or
                         1 where there is none
  --device_type=auto|gpu|cpu  cpu: N replicas on the CPU (default: auto)
  --runtime=tf1|tf2      TensorFlow 1.15 or 2.15 (default: tf2)
  --smoke                a few steps of a tiny model on samples/squad, with two
                         replicas on the CPU, in less than a minute; goes to
                         output/smoke_squad of the project, which is emptied
                         first, unless --output_dir names an empty folder
  --help                 this text

All after -- goes to run_squad_multigpu.py, where the last of two equal flags
counts: ... -- --save_checkpoints_steps=500 --seed=7
EOF
}

# shellcheck source-path=SCRIPTDIR source=lib/run_options.sh
source "$project/scripts/lib/run_options.sh"

bert_dir="" data_dir="" train_file="" predict_file=""
version=1.1 do_lower_case=True learning_rate=3e-5 num_train_epochs=2
max_seq_length=384 doc_stride=128 train_batch_size=12
given=() # options that --smoke sets itself
extra=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --help | -h)
      usage
      exit 0
      ;;
    --smoke) smoke=true ;;
    --runtime=tf1 | --runtime=tf2 | --output_dir=?* | --num_gpus=[1-9]* | \
      --device_type=auto | --device_type=gpu | --device_type=cpu)
      set_option "$1"
      ;;
    --version=1.1 | --version=2.0 | --bert_dir=?* | --data_dir=?* | \
      --train_file=?* | --predict_file=?* | --do_lower_case=True | \
      --do_lower_case=False | --learning_rate=?* | --num_train_epochs=?* | \
      --max_seq_length=?* | --doc_stride=?* | --train_batch_size=?*)
      set_option "$1"
      given+=("${1%%=*}")
      ;;
    --)
      shift
      extra=("$@")
      break
      ;;
    *)
      usage_error "'$1' does not fit the options above; other flags of" \
        "run_squad_multigpu.py go after --"
      ;;
  esac
  shift
done

if $smoke; then
  begin_smoke "$project/output/smoke_squad" ${given[@]+"${given[@]}"}
  sample=$project/samples/squad
  flags=(
    --vocab_file="$sample/vocab.txt"
    --bert_config_file="$sample/bert_config.json"
    --do_train=True --train_file="$sample/train.json"
    --do_predict=True --predict_file="$sample/dev.json"
    --learning_rate=1e-3 --num_train_epochs=0.05 --max_seq_length=80
    --doc_stride=32 --max_query_length=24 --train_batch_size=8
    --predict_batch_size=50
  )
else
  [[ -n $bert_dir ]] || usage_error "--bert_dir=DIR is missing"
  train_file=${train_file:-${data_dir:+$data_dir/train-v$version.json}}
  predict_file=${predict_file:-${data_dir:+$data_dir/dev-v$version.json}}
  [[ -n $train_file && -n $predict_file ]] ||
    usage_error "--data_dir=DIR is missing (or --train_file=FILE and" \
      "--predict_file=FILE)"
  for name in vocab.txt bert_config.json bert_model.ckpt.index; do
    check_file --bert_dir "$bert_dir/$name"
  done
  check_file --data_dir/--train_file "$train_file"
  check_file --data_dir/--predict_file "$predict_file"
  flags=(
    --vocab_file="$bert_dir/vocab.txt"
    --bert_config_file="$bert_dir/bert_config.json"
    --init_checkpoint="$bert_dir/bert_model.ckpt"
    --do_lower_case="$do_lower_case"
    --do_train=True --train_file="$train_file"
    --do_predict=True --predict_file="$predict_file"
    --learning_rate="$learning_rate" --num_train_epochs="$num_train_epochs"
    --max_seq_length="$max_seq_length" --doc_stride="$doc_stride"
    --train_batch_size="$train_batch_size"
  )
  [[ $version == 1.1 ]] || flags+=(--version_2_with_negative=True)
fi
output_dir=${output_dir:-output/squad}

begin_run

run "$python" "$project/run_squad_multigpu.py" "${flags[@]}" \
  --num_gpus="$num_gpus" --device_type="$device_type" \
  --output_dir="$output_dir" ${extra[@]+"${extra[@]}"}

echo "run_squad: done in $SECONDS s; answers, scores and model: $output_dir" \
  "(predictions.json, eval_results.json, model.ckpt-*)"
