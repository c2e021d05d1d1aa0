#!/usr/bin/env bash
# Fine-tunes BERT on classification on all GPUs and scores it (see --help).
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  cat <<'EOF'
usage: bash scripts/run_classifier.sh --task_name=NAME --bert_dir=DIR
                                      --data_dir=DIR [OPTION...] [-- FLAG...]
       bash scripts/run_classifier.sh --smoke [OPTION...] [-- FLAG...]

Fine-tunes BERT on a GLUE task, XNLI or your own files and scores the dev set.
Makes the environment if it is not there and prints the command that it runs.

  --task_name=NAME       cola, mnli, mnli-mm, mrpc, qnli, qqp, rte, sst-2,
                         sts-b, wnli, xnli, or tsv for your own files
  --bert_dir=DIR         vocab.txt, bert_config.json and bert_model.ckpt
  --data_dir=DIR         the files of the task; for tsv: train, dev and test,
                         each .tsv or .csv with a header line
  --text_a_column=NAME   tsv: the column with the text
  --text_b_column=NAME   tsv: the column with the second text, if any
  --label_column=NAME    tsv: the column with the label
  --multi_label=True|False    tsv: labels separated by commas (default: False)
  --do_predict=True|False     predict the test set as well (default: False)
  --do_lower_case=True|False  False for cased models (default: True)
  --learning_rate=X      default: 2e-5
  --num_train_epochs=X   default: 3
  --max_seq_length=N     default: 128
  --train_batch_size=N   rows per GPU (default: 32, for BERT-Base on 12 GB)

  --output_dir=DIR       default: output/NAME of the task. A run goes on from
                         the newest checkpoint in it
  --num_gpus=N           default: all GPUs that CUDA_VISIBLE_DEVICES leaves, or
                         1 where there is none
  --device_type=auto|gpu|cpu  cpu: N replicas on the CPU (default: auto)
  --runtime=tf1|tf2      TensorFlow 1.15 or 2.15 (default: tf2)
  --smoke                a few steps of a tiny model on a few made-up rows, with
                         two replicas on the CPU, in less than a minute; goes to
                         output/smoke_classifier of the project, which is
                         emptied first, unless --output_dir names an empty
                         folder
  --help                 this text

All after -- goes to run_classifier_multigpu.py, where the last of two equal
flags counts: ... -- --save_checkpoints_steps=500 --seed=7
EOF
}

# shellcheck source-path=SCRIPTDIR source=lib/run_options.sh
source "$project/scripts/lib/run_options.sh"

# Prints two rows, text and class, for each name.
make_rows() {
  local name
  for name in "$@"; do
    printf '%s keeps seven horses behind the barn.\tfarm\n' "$name"
    printf '%s works in the library of the town.\ttown\n' "$name"
  done
}

# Writes train.tsv, dev.tsv and test.tsv into the folder "$1". Six rows to score
# and two to predict do not fill the batches of two replicas.
write_smoke_data() {
  mkdir -p "$1"
  {
    printf 'text\tclass\n'
    make_rows Boris Clara Dario Edith Felix Greta Hugo Irene
  } >"$1/train.tsv"
  {
    printf 'text\tclass\n'
    make_rows Jonas Karla Leo
  } >"$1/dev.tsv"
  {
    printf 'text\n'
    make_rows Mira | cut -f 1
  } >"$1/test.tsv"
}

task_name="" bert_dir="" data_dir=""
do_predict=False do_lower_case=True learning_rate=2e-5 num_train_epochs=3
max_seq_length=128 train_batch_size=32
own_files=() # options of --task_name=tsv
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
    --text_a_column=?* | --text_b_column=?* | --label_column=?* | \
      --multi_label=True | --multi_label=False)
      own_files+=("$1")
      given+=("${1%%=*}")
      ;;
    --task_name=?* | --bert_dir=?* | --data_dir=?* | --do_predict=True | \
      --do_predict=False | --do_lower_case=True | --do_lower_case=False | \
      --learning_rate=?* | --num_train_epochs=?* | --max_seq_length=?* | \
      --train_batch_size=?*)
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
        "run_classifier_multigpu.py go after --"
      ;;
  esac
  shift
done

if $smoke; then
  begin_smoke "$project/output/smoke_classifier" ${given[@]+"${given[@]}"}
  write_smoke_data "$output_dir/data"
  sample=$project/samples/squad
  flags=(
    --task_name=tsv --data_dir="$output_dir/data"
    --vocab_file="$sample/vocab.txt"
    --bert_config_file="$sample/bert_config.json"
    --do_train=True --do_eval=True --do_predict=True
    --learning_rate=1e-3 --num_train_epochs=2 --max_seq_length=24
    --train_batch_size=4 --eval_batch_size=4 --predict_batch_size=4
  )
else
  for option in task_name bert_dir data_dir; do
    [[ -n ${!option} ]] || usage_error "--$option=... is missing"
  done
  for name in vocab.txt bert_config.json bert_model.ckpt.index; do
    check_file --bert_dir "$bert_dir/$name"
  done
  [[ $data_dir == *://* || -d $data_dir ]] ||
    fail "--data_dir: there is no folder $data_dir"
  flags=(
    --task_name="$task_name" --data_dir="$data_dir"
    --vocab_file="$bert_dir/vocab.txt"
    --bert_config_file="$bert_dir/bert_config.json"
    --init_checkpoint="$bert_dir/bert_model.ckpt"
    --do_lower_case="$do_lower_case"
    --do_train=True --do_eval=True --do_predict="$do_predict"
    --learning_rate="$learning_rate" --num_train_epochs="$num_train_epochs"
    --max_seq_length="$max_seq_length" --train_batch_size="$train_batch_size"
    ${own_files[@]+"${own_files[@]}"}
  )
fi
output_dir=${output_dir:-output/$task_name}

begin_run

run "$python" "$project/run_classifier_multigpu.py" "${flags[@]}" \
  --num_gpus="$num_gpus" --device_type="$device_type" \
  --output_dir="$output_dir" ${extra[@]+"${extra[@]}"}

echo "run_classifier: done in $SECONDS s; scores and model: $output_dir" \
  "(eval_results.txt, model.ckpt-*)"
