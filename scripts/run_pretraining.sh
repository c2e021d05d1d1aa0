#!/usr/bin/env bash
# Makes records of text and pre-trains BERT on all GPUs (see --help).
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  cat <<'EOF'
usage: bash scripts/run_pretraining.sh --bert_dir=DIR --text=FILES [OPTION...]
                                       [-- FLAG...]
       bash scripts/run_pretraining.sh --bert_dir=DIR --records=FILES
                                       [OPTION...] [-- FLAG...]
       bash scripts/run_pretraining.sh --smoke [OPTION...] [-- FLAG...]

Makes pre-training records of text, pre-trains BERT on them (masked LM, next
sentence) and evaluates on the same records. Makes the environment if it is not
there and prints the commands that it runs.

  --bert_dir=DIR         vocab.txt, bert_config.json and bert_model.ckpt
  --from_scratch         start from random weights, without bert_model.ckpt
  --text=FILES           plain text: names or globs, separated by commas; a
                         sentence a line, a blank line between documents. The
                         records go to OUTPUT_DIR/records
  --records=FILES        records made before, as --text made them: names or
                         globs, separated by commas
  --dupe_factor=N        with --text: use of each document (default: 5)
  --do_whole_word_mask=True|False  with --text (default: False)
  --do_lower_case=True|False  with --text; False for cased models (default:
                         True)
  --max_seq_length=N     default: 128
  --max_predictions_per_seq=N  masked word pieces of a row at most (default: 20,
                         about 15 % of 128)
  --num_train_steps=N    default: 100000
  --num_warmup_steps=N   default: a tenth of the steps
  --learning_rate=X      default: 2e-5, with --from_scratch 1e-4
  --train_batch_size=N   rows per GPU (default: 32, for BERT-Base on 12 GB)

  --output_dir=DIR       default: output/pretraining. A run goes on from the
                         newest checkpoint in it
  --num_gpus=N           default: all GPUs that CUDA_VISIBLE_DEVICES leaves, or
                         1 where there is none
  --device_type=auto|gpu|cpu  cpu: N replicas on the CPU (default: auto)
  --runtime=tf1|tf2      TensorFlow 1.15 or 2.15 (default: tf2)
  --smoke                a few steps of a tiny model on a few made-up sentences,
                         with two replicas on the CPU, in less than a minute;
                         goes to output/smoke_pretraining of the project, which
                         is emptied first, unless --output_dir names an empty
                         folder
  --help                 this text

All after -- goes to run_pretraining_multigpu.py, where the last of two equal
flags counts: ... -- --save_checkpoints_steps=500 --seed=7
EOF
}

# shellcheck source-path=SCRIPTDIR source=lib/run_options.sh
source "$project/scripts/lib/run_options.sh"

# Prints three documents of words that samples/squad/vocab.txt has.
make_smoke_text() {
  local name
  for name in Boris Clara Dario; do
    cat <<EOF
$name lives in a house with blue windows.
The house is near the harbour of Corvale.
Twenty ducks live on the lake behind the barn.
On Monday, $name goes to the market early.
$name likes warm bread and tomato soup for dinner.
The best apples are for the horses.
In the evening, $name plays chess with the baker.
On rain days the library is the best place.

EOF
  done
}

bert_dir="" from_scratch=false text="" records=""
dupe_factor=5 do_whole_word_mask=False do_lower_case=True
max_seq_length=128 max_predictions_per_seq=20
num_train_steps=100000 num_warmup_steps="" learning_rate="" train_batch_size=32
given=() # options that --smoke sets itself
given_text=() # those of them that go with --text
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
    --from_scratch)
      from_scratch=true
      given+=("$1")
      ;;
    --bert_dir=?* | --text=?* | --records=?* | --max_seq_length=?* | \
      --max_predictions_per_seq=?* | --num_train_steps=[1-9]* | \
      --num_warmup_steps=?* | --learning_rate=?* | --train_batch_size=?*)
      set_option "$1"
      given+=("${1%%=*}")
      ;;
    --dupe_factor=?* | --do_whole_word_mask=True | \
      --do_whole_word_mask=False | --do_lower_case=True | \
      --do_lower_case=False)
      set_option "$1"
      given+=("${1%%=*}")
      given_text+=("${1%%=*}")
      ;;
    --)
      shift
      extra=("$@")
      break
      ;;
    *)
      usage_error "'$1' does not fit the options above; other flags of" \
        "run_pretraining_multigpu.py go after --"
      ;;
  esac
  shift
done
# The program that checks them starts only when the records are made.
for option in num_gpus num_train_steps; do
  [[ ${!option} =~ ^[0-9]*$ ]] ||
    usage_error "--$option=${!option}, wanted a number"
done

if $smoke; then
  begin_smoke "$project/output/smoke_pretraining" ${given[@]+"${given[@]}"}
  mkdir -p "$output_dir"
  make_smoke_text >"$output_dir/text.txt"
  text=$output_dir/text.txt
  bert_dir=$project/samples/squad
  from_scratch=true max_seq_length=32 max_predictions_per_seq=5
  num_train_steps=5 learning_rate=1e-3 train_batch_size=4
else
  [[ -n $bert_dir ]] || usage_error "--bert_dir=DIR is missing"
  [[ -n $text || -n $records ]] ||
    usage_error "--text=FILES or --records=FILES is missing"
  [[ -z $text || -z $records ]] ||
    usage_error "--text=FILES or --records=FILES, not both"
  [[ -z $records || ${#given_text[@]} -eq 0 ]] ||
    usage_error "--records=FILES are made already: leave out ${given_text[*]}"
  needed=(bert_config.json)
  [[ -z $text ]] || needed+=(vocab.txt)
  $from_scratch || needed+=(bert_model.ckpt.index)
  for name in "${needed[@]}"; do
    check_file "--bert_dir (see also --from_scratch)" "$bert_dir/$name"
  done
fi
output_dir=${output_dir:-output/pretraining}
if $from_scratch; then
  learning_rate=${learning_rate:-1e-4}
else
  # Less than from random weights, or what the checkpoint knows is lost.
  learning_rate=${learning_rate:-2e-5}
fi
num_warmup_steps=${num_warmup_steps:-$((num_train_steps / 10))}

begin_run

if [[ -n $text ]]; then
  # Several files, so that training reads from more than one place at a time.
  num_files=8
  outputs=""
  for ((i = 1; i <= num_files; i++)); do
    outputs+=${outputs:+,}$output_dir/records/part-$i-of-$num_files.tfrecord
  done
  [[ $output_dir == *://* ]] || mkdir -p "$output_dir/records"
  run "$python" "$project/create_pretraining_data.py" \
    --input_file="$text" --output_file="$outputs" \
    --vocab_file="$bert_dir/vocab.txt" --do_lower_case="$do_lower_case" \
    --do_whole_word_mask="$do_whole_word_mask" --dupe_factor="$dupe_factor" \
    --max_seq_length="$max_seq_length" \
    --max_predictions_per_seq="$max_predictions_per_seq"
  records="$output_dir/records/part-*-of-$num_files.tfrecord"
  echo "run_pretraining: the records are made; to use them again:" \
    "--records='$records' instead of --text"
fi

flags=(
  --input_file="$records" --bert_config_file="$bert_dir/bert_config.json"
  --do_train=True --do_eval=True
  --max_seq_length="$max_seq_length"
  --max_predictions_per_seq="$max_predictions_per_seq"
  --num_train_steps="$num_train_steps" --num_warmup_steps="$num_warmup_steps"
  --learning_rate="$learning_rate" --train_batch_size="$train_batch_size"
)
$from_scratch || flags+=(--init_checkpoint="$bert_dir/bert_model.ckpt")
run "$python" "$project/run_pretraining_multigpu.py" "${flags[@]}" \
  --num_gpus="$num_gpus" --device_type="$device_type" \
  --output_dir="$output_dir" ${extra[@]+"${extra[@]}"}

echo "run_pretraining: done in $SECONDS s; scores and model: $output_dir" \
  "(eval_results.txt, model.ckpt-*)"
