"""Pre-trains BERT (masked LM, next sentence) on one or several GPUs.

The command line of Google's run_pretraining.py plus --num_gpus:

    python run_pretraining_multigpu.py \\
      --input_file='records/*.tfrecord' --output_dir=output/pretraining \\
      --bert_config_file=uncased_L-12_H-768_A-12/bert_config.json \\
      --do_train=True --do_eval=True \\
      --train_batch_size=32 --num_gpus=2 \\
      --max_seq_length=128 --max_predictions_per_seq=20 \\
      --num_train_steps=100000 --num_warmup_steps=10000 \\
      --learning_rate=1e-4

Batch sizes are per GPU. The records come from create_pretraining_data.py. This
file holds the flags and the wiring; the task is in tasks/pretraining_*.py,
devices are in multigpu/.
"""
import logging
import os

import multigpu  # noqa: F401  (sets the environment for TensorFlow: first)
import tensorflow.compat.v1 as tf

from multigpu import cli
from multigpu import file_kinds
from multigpu import flags as run_flags
from multigpu import record_files
from multigpu import records
from multigpu import training
from multigpu.errors import UserError
from multigpu.evaluation import Scoring
from multigpu.model_fn import ModelSettings, build_model_fn
from multigpu.runs import Rows
from tasks import pretraining_files
from tasks import pretraining_metrics
from tasks import pretraining_records
from tasks.pretraining_head import (gather_indexes, get_masked_lm_output,
                                    get_next_sentence_output,
                                    make_pretraining_head)
from tasks.pretraining_records import record_table

__all__ = [
    "gather_indexes", "get_masked_lm_output", "get_next_sentence_output",
    "input_fn_builder", "main", "model_fn_builder"]

_LOG = logging.getLogger(__name__)

flags = tf.flags
FLAGS = flags.FLAGS

flags.DEFINE_string(
    "input_file", None,
    "TFRecord files: names or globs, separated by commas.")
flags.DEFINE_integer(
    "max_seq_length", 128, "As given to create_pretraining_data.py.")
flags.DEFINE_integer(
    "max_predictions_per_seq", 20, "As given to create_pretraining_data.py.")
flags.DEFINE_bool("do_train", False, "Train.")
flags.DEFINE_bool("do_eval", False, "Evaluate on the same files.")
flags.DEFINE_integer("train_batch_size", 32, "Training batch of one GPU.",
                     lower_bound=1)
flags.DEFINE_integer("eval_batch_size", 8, "Evaluation batch of one GPU.",
                     lower_bound=1)
flags.DEFINE_float("learning_rate", 5e-5, "Highest learning rate of Adam.")
flags.DEFINE_integer("num_train_steps", 100000, "Weight updates.",
                     lower_bound=1)
flags.DEFINE_integer("num_warmup_steps", 10000, "Updates of linear warm-up.",
                     lower_bound=0)
flags.DEFINE_integer(
    "max_eval_steps", 100,
    "Evaluate over the first max_eval_steps x eval_batch_size records at most, "
    "whatever the number of GPUs; each record counts once.", lower_bound=1)
run_flags.define_run_flags()
# So that --help shows them too.
flags.adopt_module_key_flags(run_flags)


def model_fn_builder(bert_config, init_checkpoint, learning_rate,
                     num_train_steps, num_warmup_steps, use_tpu,
                     use_one_hot_embeddings, *, seed=0):
  """Returns the `model_fn` for Estimator; `use_tpu` must be false."""
  if use_tpu:
    raise ValueError("use_tpu=True: this model_fn is for GPUs and CPUs.")
  return build_model_fn(make_pretraining_head(bert_config), ModelSettings(
      bert_config=bert_config, init_checkpoint=init_checkpoint,
      learning_rate=learning_rate, num_train_steps=num_train_steps,
      num_warmup_steps=num_warmup_steps,
      use_one_hot_embeddings=use_one_hot_embeddings, seed=seed))


def input_fn_builder(input_files, max_seq_length, max_predictions_per_seq,
                     is_training, num_cpu_threads=4, *,
                     order=records.TrainingOrder(), num_rows=None,
                     num_replicas=1):
  """Returns an `input_fn(params)`; `params["batch_size"]` is per replica.

  Args:
    input_files: list of TFRecord files.
    max_seq_length, max_predictions_per_seq: as the records were made.
    is_training: endless shuffled batches instead of each row once, in order.
    num_cpu_threads: there for Google's callers.
    order: training: seed and first row.
    num_rows: evaluation: rows wanted; all when None.
    num_replicas: evaluation: fill up to a whole round of so many batches.
  """
  del num_cpu_threads
  table = record_table(max_seq_length, max_predictions_per_seq)

  def input_fn(params):
    if is_training:
      return records.training_dataset(input_files, table, params["batch_size"],
                                      order)
    return records.inference_dataset(
        input_files, table, params["batch_size"],
        records.count_rows(input_files) if num_rows is None else num_rows,
        num_replicas)

  return input_fn


def _find_input_files():
  paths = pretraining_files.find_files(FLAGS.input_file, "input_file")
  for path in paths:
    file_kinds.check_record_file(path, "input_file")
  return paths


def _check_records(rows, bert_config):
  """Looks at the first record of each file, before there is a model."""
  limits = pretraining_records.value_limits(
      FLAGS.max_seq_length, bert_config.vocab_size, bert_config.type_vocab_size)
  record_files.check_files(
      rows.paths, record_files.Expected(
          rows.table, limits, pretraining_records.LENGTH_FLAGS), FLAGS.strict)


def _count_rows(rows):
  """Returns (records to evaluate on, all records)."""
  num_records = records.count_rows(rows.paths)
  return min(num_records,
             FLAGS.max_eval_steps * FLAGS.eval_batch_size), num_records


def score(run, rows):
  """Evaluates the weights of a run; each record counts once."""
  num_rows, _ = _count_rows(rows)
  results = pretraining_metrics.evaluate(run.predict(
      make_pretraining_head(run.bert_config), rows, num_rows,
      FLAGS.eval_batch_size, title="evaluate"))
  results["global_step"] = run.checkpoint_step()
  return results


def train(run, rows):
  """Trains for --num_train_steps updates."""
  plan = training.TrainPlan(
      per_replica_batch_size=FLAGS.train_batch_size,
      num_replicas=run.devices.num_replicas,
      accumulation_steps=FLAGS.gradient_accumulation_steps,
      num_train_steps=FLAGS.num_train_steps,
      num_warmup_steps=FLAGS.num_warmup_steps)
  training.log_start(plan, run.devices)
  run.train(make_pretraining_head(run.bert_config), rows, plan,
            FLAGS.learning_rate, Scoring(
                lambda run: score(run, rows), pretraining_metrics.METRICS))


def evaluate(run, rows):
  """Evaluates the newest or best checkpoint and writes the results."""
  _LOG.info("***** Evaluation *****\n  devices %s\n  records %d of %d",
            run.devices.describe_local(), *_count_rows(rows))
  results = score(run, rows)
  path = os.path.join(FLAGS.output_dir, "eval_results.txt")
  pretraining_metrics.write_results(path, results)
  run.add_scores_to_curves(results)
  for key in sorted(results):
    _LOG.info("%s = %s", key, results[key])
  _LOG.info("Results are in %s", path)


def main(_):
  """Trains and evaluates as the flags say."""
  if not FLAGS.do_train and not FLAGS.do_eval:
    raise UserError("Nothing to do: pass --do_train=True, --do_eval=True or "
                    "both.")
  rows = Rows(_find_input_files(), record_table(
      FLAGS.max_seq_length, FLAGS.max_predictions_per_seq))
  run = run_flags.set_up_run(pretraining_metrics.METRICS)
  _check_records(rows, run.bert_config)
  run.check_checkpoint(make_pretraining_head(run.bert_config), rows.table,
                       FLAGS.do_train)
  _LOG.info("Input files: %s", ", ".join(rows.paths))
  run.make_output_dir()
  if FLAGS.do_train:
    train(run, rows)
  if FLAGS.do_eval and run.is_chief:
    evaluate(run, rows)


if __name__ == "__main__":
  for required in ("input_file", "bert_config_file", "output_dir"):
    flags.mark_flag_as_required(required)
  cli.run(main)
