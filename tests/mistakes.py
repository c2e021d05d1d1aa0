"""Kinds of mistakes, and a program that makes all of one script's in a row.

    python tests/mistakes.py run_squad_multigpu FOLDER

builds tests/mistakes_world.py in FOLDER, runs the script's main once for each
mistake and prints one line of JSON: {key: [status, output, seconds, number of
sessions, files written]}. One process, because starting TensorFlow takes longer
than all of them. tests/test_mistakes.py compares the messages with
docs/mistakes.md.
"""
import importlib
import json
import os
import pathlib
import sys
import tempfile
import time

SQUAD, CLASSIFIER, PRETRAINING, CREATE = SCRIPTS = (
    "run_squad_multigpu", "run_classifier_multigpu",
    "run_pretraining_multigpu", "create_pretraining_data")
RUNS = (SQUAD, CLASSIFIER, PRETRAINING)
TOKENIZING = (SQUAD, CLASSIFIER, CREATE)
ALL = SCRIPTS

_MODEL = dict(bert_config_file="model/bert_config.json", output_dir="out",
              device_type="cpu", max_seq_length=32, do_train=True,
              train_batch_size=1)
GOOD = {
    SQUAD: dict(_MODEL, vocab_file="model/vocab.txt", train_file="train.json",
                max_query_length=8, doc_stride=8),
    CLASSIFIER: dict(_MODEL, vocab_file="model/vocab.txt", data_dir="data",
                     task_name="MRPC"),
    PRETRAINING: dict(_MODEL, input_file="rows.tfrecord", num_train_steps=4,
                      num_warmup_steps=1, max_predictions_per_seq=5),
    CREATE: dict(input_file="corpus.txt", output_file="out.tfrecord",
                 vocab_file="model/vocab.txt", max_seq_length=32,
                 max_predictions_per_seq=5)}
REQUIRED = {
    SQUAD: ("vocab_file", "bert_config_file", "output_dir"),
    CLASSIFIER: ("data_dir", "task_name", "vocab_file", "bert_config_file",
                 "output_dir"),
    PRETRAINING: ("input_file", "bert_config_file", "output_dir"),
    CREATE: ("input_file", "output_file", "vocab_file")}


def config(name):
  """A mistake in --bert_config_file."""
  return RUNS, dict(bert_config_file="wrong/" + name)


def vocab(name):
  """A mistake in --vocab_file."""
  return TOKENIZING, dict(vocab_file="wrong/" + name)


def checkpoint(path):
  """A mistake in --init_checkpoint."""
  return RUNS, dict(init_checkpoint=path)


# Key: (programs, flags that are changed (None: left out) or, as a list, words
# to add to the command line).
MISTAKES = {
    # Flags.
    "nothing to do": (RUNS, dict(do_train=False)),
    "learning rate": (RUNS, dict(learning_rate=0)),
    "learning rate not a number": (RUNS, dict(learning_rate="nan")),
    "several flags": (RUNS[:2], dict(learning_rate=-1, num_train_epochs=0)),
    "epochs": (RUNS[:2], dict(num_train_epochs=0)),
    "warm-up share": (RUNS[:2], dict(warmup_proportion=10)),
    "warm-up steps": ((PRETRAINING,), dict(num_warmup_steps=5)),
    "batch size": (RUNS, dict(train_batch_size=0)),
    "not true or false": (RUNS, dict(do_train="perhaps")),
    "not one of the choices": (RUNS, dict(precision="fp8")),
    "not a number": (RUNS, dict(train_batch_size="many")),
    "seed": (RUNS, dict(seed=2**40)),
    "misspelt flag": (RUNS, ["--num_gpu=2"]),
    "missing flag": (ALL[:3], dict(bert_config_file=None)),
    "words between flags": (ALL, ["corpus.txt", "train.json"]),
    "boolean with a space": (RUNS, ["--do_train", "False"]),
    "use_tpu": (RUNS, dict(use_tpu=True)),
    "more GPUs than there are": (RUNS, dict(num_gpus=9, device_type="gpu")),
    "nccl without GPUs": (RUNS, dict(all_reduce="nccl")),
    "sequence longer than positions": (RUNS, dict(max_seq_length=64)),
    "sequence too short": ((CLASSIFIER, PRETRAINING), dict(
        max_seq_length=2, max_predictions_per_seq=None)),
    "sequence too short for a pair": ((CREATE,), dict(
        max_seq_length=4, max_predictions_per_seq=1)),
    "question longer than sequence": ((SQUAD,), dict(max_query_length=29)),
    "stride": ((SQUAD,), dict(doc_stride=0)),
    "n best": ((SQUAD,), dict(n_best_size=0, do_predict=True,
                              predict_file="train.json")),
    "more predictions than pieces": (
        (PRETRAINING, CREATE), dict(max_predictions_per_seq=40)),
    "columns of another task": ((CLASSIFIER,), dict(label_column="label")),
    "task": ((CLASSIFIER,), dict(task_name="nothing")),
    # Folders.
    "output is a file": (RUNS, dict(output_dir="train.json")),
    "output below a file": (RUNS, dict(output_dir="train.json/out")),
    "output empty": (RUNS, dict(output_dir="")),
    "output would replace an input": ((SQUAD,), dict(
        do_predict=True, predict_file="predictions/predictions.json",
        output_dir="predictions")),
    "no data folder": ((CLASSIFIER,), dict(data_dir="dat")),
    "data folder is a file": ((CLASSIFIER,), dict(data_dir="data/train.tsv")),
    # Files of any kind.
    "no file": ((SQUAD,), dict(train_file="trian.json")),
    "no file in no folder": ((SQUAD,), dict(train_file="squad/train.json")),
    "flag without a file": ((SQUAD,), dict(train_file=None)),
    "folder for a file": ((SQUAD,), dict(train_file="data")),
    "empty file": ((SQUAD,), dict(train_file="wrong/empty")),
    "compressed file": ((SQUAD,), dict(train_file="wrong/packed.gz")),
    "web page": ((SQUAD,), dict(train_file="wrong/page.html")),
    "Git LFS": ((SQUAD,), dict(train_file="wrong/pointer.txt")),
    "UTF-16": ((CREATE,), dict(input_file="wrong/utf16.txt")),
    "compressed corpus": ((CREATE,), dict(input_file="wrong/packed.gz")),
    "records as text": ((CREATE,), dict(input_file="rows.tfrecord")),
    "text as records": ((PRETRAINING,), dict(input_file="corpus.txt")),
    "glob without files": ((PRETRAINING, CREATE), dict(input_file="no*")),
    "folder as records": ((PRETRAINING,), dict(input_file="data")),
    # Vocabulary.
    "no vocabulary": (TOKENIZING, dict(vocab_file="model/vocab.text")),
    "vocabulary is a folder": (TOKENIZING, dict(vocab_file="model")),
    "vocabulary is empty": vocab("empty"),
    "vocabulary is a checkpoint": (TOKENIZING, dict(
        vocab_file="model/bert_model.ckpt.index")),
    "vocabulary is a configuration": (TOKENIZING, dict(
        vocab_file="model/bert_config.json")),
    "vocabulary too long": (RUNS[:2], dict(vocab_file="wrong/longer.txt")),
    "vocabulary without markers": vocab("no_cls.txt"),
    "vocabulary without mask": ((CREATE,), dict(
        vocab_file="wrong/no_mask.txt")),
    "vocabulary not UTF-8": vocab("latin1.txt"),
    "vocabulary with upper case": vocab("cased.txt"),
    "vocabulary ends with blank lines": ((CREATE,), dict(
        vocab_file="wrong/blank_end.txt")),
    # Configuration.
    "no configuration": config("none.json"),
    "configuration is a vocabulary": (RUNS, dict(
        bert_config_file="model/vocab.txt")),
    "configuration of something else": (RUNS, dict(
        bert_config_file="train.json")),
    "configuration is binary": config("binary"),
    "configuration is a list": config("list.json"),
    "configuration torn": config("torn.json"),
    "setting is text": config("text_number.json"),
    "setting below 1": config("negative.json"),
    "setting missing": config("no_vocab_size.json"),
    "setting misspelt": config("misspelt.json"),
    "setting twice": config("twice.json"),
    "heads": config("heads.json"),
    "activation": config("act.json"),
    "dropout": config("dropout.json"),
    "another kind of model": config("albert.json"),
    # Checkpoint.
    "checkpoint .index": checkpoint("model/bert_model.ckpt.index"),
    "checkpoint .data": checkpoint("model/bert_model.ckpt.data-00000-of-00001"),
    "checkpoint .meta": checkpoint("model/bert_model.ckpt.meta"),
    "no checkpoint": checkpoint("model/bert.ckpt"),
    "no checkpoint, no folder": checkpoint("bert/bert_model.ckpt"),
    "checkpoint is a configuration": checkpoint("model/bert_config.json"),
    "checkpoint in an empty folder": checkpoint("empty_folder"),
    "checkpoint in a folder of Hugging Face": checkpoint("hf"),
    "checkpoint of PyTorch": checkpoint("hf/pytorch_model.bin"),
    "checkpoint in safetensors": checkpoint("hf/model.safetensors"),
    "several checkpoints": checkpoint("two"),
    "checkpoint cut off": checkpoint("torn/data.ckpt"),
    "checkpoint index cut off": checkpoint("torn/index.ckpt"),
    "checkpoint without data": checkpoint("headless/no_data.ckpt"),
    "checkpoint without index": checkpoint("headless/no_index.ckpt"),
    "checkpoint of no BERT": checkpoint("other/other.ckpt"),
    "checkpoint of another size": (RUNS, dict(
        bert_config_file="wrong/wider.json",
        init_checkpoint="model/bert_model.ckpt")),
    "checkpoint with fewer layers": (RUNS, dict(
        bert_config_file="wrong/deeper.json",
        init_checkpoint="model/bert_model.ckpt")),
    "checkpoint of other labels": ((CLASSIFIER,), dict(
        init_checkpoint="other/classifier.ckpt")),
}


def command(script, change):
  """The command line of a mistake, without the program."""
  flags = dict(GOOD[script])
  words = []
  if isinstance(change, dict):
    flags.update(change)
  else:
    words = list(change)
  return ["--{}={}".format(name, value) for name, value in flags.items()
          if value is not None] + words


def _list_files():
  return sorted(str(path) for path in pathlib.Path().rglob("*"))


def _run(start, argv):
  """Runs a program in this process; returns (status, output)."""
  sys.argv = ["program"] + argv
  with tempfile.TemporaryFile() as output:
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in (1, 2)]
    for number in (1, 2):
      os.dup2(output.fileno(), number)
    try:
      start()
      status = 0
    except SystemExit as stop:
      status = stop.code
      if isinstance(status, str):  # what the interpreter does with it
        print(status, file=sys.stderr)
        status = 1
    finally:
      sys.stdout.flush()
      sys.stderr.flush()
      for number, copy in zip((1, 2), kept):
        os.dup2(copy, number)
        os.close(copy)
    output.seek(0)
    return status, output.read().decode("utf-8")


def main():
  """Makes the mistakes of one script."""
  script, folder = sys.argv[1:]
  sys.path.insert(0, os.getcwd())
  module = importlib.import_module(script)
  from absl import app
  import tensorflow.compat.v1 as tf
  import mistakes_world
  from multigpu import cli
  mistakes_world.build(folder)
  os.chdir(folder)
  for flag in REQUIRED[script]:
    app.flags.mark_flag_as_required(flag)
  start = ((lambda: app.run(module._run)) if script == CREATE
           else (lambda: cli.run(module.main)))
  sessions = []
  make_session = tf.Session.__init__

  def count_session(*args, **kwargs):
    sessions.append(1)
    return make_session(*args, **kwargs)

  tf.Session.__init__ = count_session
  found = {}
  for key, (scripts, change) in MISTAKES.items():
    if script not in scripts:
      continue
    before, begin = _list_files(), time.monotonic()
    for name in app.flags.FLAGS:
      app.flags.FLAGS[name].unparse()
    status, output = _run(start, command(script, change))
    found[key] = [status, output, time.monotonic() - begin, len(sessions),
                  sorted(set(_list_files()) - set(before))]
  print(json.dumps(found))


if __name__ == "__main__":
  main()
