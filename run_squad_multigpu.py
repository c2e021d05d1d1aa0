"""Fine-tunes BERT on SQuAD 1.1 or 2.0 and predicts, on one or several GPUs.

The command line of Google's run_squad.py plus --num_gpus:

    python run_squad_multigpu.py \\
      --vocab_file=uncased_L-12_H-768_A-12/vocab.txt \\
      --bert_config_file=uncased_L-12_H-768_A-12/bert_config.json \\
      --init_checkpoint=uncased_L-12_H-768_A-12/bert_model.ckpt \\
      --do_train=True --train_file=train-v2.0.json \\
      --do_predict=True --predict_file=dev-v2.0.json \\
      --learning_rate=3e-5 --num_train_epochs=2.0 \\
      --max_seq_length=384 --doc_stride=128 \\
      --train_batch_size=12 --num_gpus=2 \\
      --output_dir=output --version_2_with_negative=True

Batch sizes are per GPU. This file holds the flags and the wiring; the task is
in tasks/squad*.py, devices are in multigpu/.
"""
import json
import logging
import os
import random

import multigpu  # noqa: F401  (sets the environment for TensorFlow: first)
import tensorflow.compat.v1 as tf

import modeling
from multigpu import cli
from multigpu import file_kinds
from multigpu import flags as run_flags
from multigpu import model_files
from multigpu import records
from multigpu import training
from multigpu.errors import UserError
from multigpu.evaluation import Scoring
from multigpu.model_fn import ModelSettings, build_model_fn
from multigpu.runs import Rows
from tasks import squad_answers
from tasks import squad_data
from tasks import squad_examples
from tasks import squad_head
from tasks import squad_metrics
from tasks import squad_pipeline
from tasks import workers
from tasks.squad_answers import RawResult
from tasks.squad_answers import _compute_softmax, _get_best_indexes
from tasks.squad_data import InputFeatures, SquadExample
from tasks.squad_data import _check_is_max_context, _improve_answer_span
from tasks.squad_data import convert_examples_to_features

__all__ = [
    "FeatureWriter", "InputFeatures", "RawResult", "SquadExample",
    "_check_is_max_context", "_compute_softmax", "_get_best_indexes",
    "_improve_answer_span", "convert_examples_to_features", "create_model",
    "get_final_text", "input_fn_builder", "main", "model_fn_builder",
    "read_squad_examples", "validate_flags_or_throw", "write_predictions"]

_LOG = logging.getLogger(__name__)

# Order in which the training examples are written; Google's number.
EXAMPLE_SHUFFLE_SEED = 12345

flags = tf.flags
FLAGS = flags.FLAGS

flags.DEFINE_string("vocab_file", None, "The vocabulary of the checkpoint.")
flags.DEFINE_string("train_file", None, "SQuAD-format JSON to train on.")
flags.DEFINE_string("predict_file", None,
                    "SQuAD-format JSON to answer; with answers in it the run "
                    "ends with exact match and F1.")
flags.DEFINE_bool("do_lower_case", True,
                  "Lower-case the text: true for uncased models.")
flags.DEFINE_integer(
    "max_seq_length", 384,
    "Length of a window in word pieces, question and markers included.")
flags.DEFINE_integer(
    "doc_stride", 128,
    "Word pieces between the starts of two windows of a long document.")
flags.DEFINE_integer("max_query_length", 64,
                     "Word pieces of a question; longer ones are cut.")
flags.DEFINE_bool("do_train", False, "Train.")
flags.DEFINE_bool("do_predict", False, "Answer --predict_file.")
flags.DEFINE_integer("train_batch_size", 32,
                     "Training batch of one GPU.", lower_bound=1)
flags.DEFINE_integer("predict_batch_size", 8,
                     "Prediction batch of one GPU.", lower_bound=1)
flags.DEFINE_float("learning_rate", 5e-5, "Highest learning rate of Adam.")
flags.DEFINE_float("num_train_epochs", 3.0, "Passes over the examples.")
flags.DEFINE_float(
    "warmup_proportion", 0.1,
    "Share of the training steps in which the learning rate rises linearly.")
flags.DEFINE_integer("n_best_size", 20,
                     "Answers to write to nbest_predictions.json.")
flags.DEFINE_integer("max_answer_length", 30,
                     "Longest answer in word pieces.")
flags.DEFINE_bool("verbose_logging", False,
                  "Log each answer that cannot be found in the document.")
flags.DEFINE_bool("version_2_with_negative", False,
                  "SQuAD 2.0: some questions have no answer.")
flags.DEFINE_float(
    "null_score_diff_threshold", 0.0,
    "SQuAD 2.0: answer \"\" when null odds exceed this.")
flags.DEFINE_integer(
    "num_workers", None,
    "Processes that make features, where there are many to make; the records "
    "are the same for any number. Default: the number of cores.",
    lower_bound=1)
run_flags.define_run_flags()
# So that --help shows them too.
flags.adopt_module_key_flags(run_flags)


class FeatureWriter:
  """Writes features to a TFRecord file."""

  def __init__(self, filename, is_training, *, max_seq_length=None):
    self.filename = filename
    self.is_training = is_training
    self._writer = records.RecordWriter(filename, squad_data.record_table(
        max_seq_length or FLAGS.max_seq_length, is_training))

  @property
  def num_features(self):
    """Features written so far."""
    return self._writer.num_records

  def process_feature(self, feature):
    """Writes one InputFeatures."""
    self._writer.write(
        squad_data.feature_to_record(feature, self.is_training))

  def close(self):
    """Finishes the file; before, it has a temporary name."""
    self._writer.close()


def read_squad_examples(input_file, is_training):
  """Reads a SQuAD JSON file into a list of SquadExample."""
  return squad_examples.read_squad_examples(
      input_file, is_training, FLAGS.version_2_with_negative, FLAGS.strict)


def get_final_text(pred_text, orig_text, do_lower_case):
  """Finds the text of the document that word pieces stand for."""
  return squad_answers.get_final_text(pred_text, orig_text, do_lower_case,
                                      FLAGS.verbose_logging)


def write_predictions(all_examples, all_features, all_results, n_best_size,
                      max_answer_length, do_lower_case, output_prediction_file,
                      output_nbest_file, output_null_log_odds_file):
  """Turns logits into the three files of answers."""
  squad_answers.write_predictions(
      all_examples, all_features, all_results, n_best_size, max_answer_length,
      do_lower_case, output_prediction_file, output_nbest_file,
      output_null_log_odds_file,
      version_2_with_negative=FLAGS.version_2_with_negative,
      null_score_diff_threshold=FLAGS.null_score_diff_threshold,
      verbose_logging=FLAGS.verbose_logging)


def create_model(bert_config, is_training, input_ids, input_mask, segment_ids,
                 use_one_hot_embeddings):
  """Builds BERT and the span head; returns (start_logits, end_logits)."""
  return squad_head.span_logits(modeling.BertModel(
      config=bert_config, is_training=is_training, input_ids=input_ids,
      input_mask=input_mask, token_type_ids=segment_ids,
      use_one_hot_embeddings=use_one_hot_embeddings))


def model_fn_builder(bert_config, init_checkpoint, learning_rate,
                     num_train_steps, num_warmup_steps, use_tpu,
                     use_one_hot_embeddings, *, seed=0):
  """Returns the `model_fn` for Estimator; `use_tpu` must be false."""
  if use_tpu:
    raise ValueError("use_tpu=True: this model_fn is for GPUs and CPUs.")
  return build_model_fn(squad_head.squad_head, ModelSettings(
      bert_config=bert_config, init_checkpoint=init_checkpoint,
      learning_rate=learning_rate, num_train_steps=num_train_steps,
      num_warmup_steps=num_warmup_steps,
      use_one_hot_embeddings=use_one_hot_embeddings, seed=seed))


def input_fn_builder(input_file, seq_length, is_training, drop_remainder, *,
                     order=records.TrainingOrder(), num_rows=None,
                     num_replicas=1):
  """Returns an `input_fn(params)`; `params["batch_size"]` is per replica.

  Args:
    input_file: TFRecord file of `FeatureWriter`.
    seq_length: its max_seq_length.
    is_training: endless shuffled batches instead of each row once, in order.
    drop_remainder: there for Google's callers; batches are always full.
    order: training: seed and first row.
    num_rows: prediction: rows in the file; counted when None.
    num_replicas: prediction: fill up to a whole round of so many batches.
  """
  del drop_remainder
  table = squad_data.record_table(seq_length, is_training)

  def input_fn(params):
    if is_training:
      return records.training_dataset(
          input_file, table, params["batch_size"], order)
    return records.inference_dataset(
        input_file, table, params["batch_size"],
        records.count_rows(input_file) if num_rows is None else num_rows,
        num_replicas)

  return input_fn


def validate_flags_or_throw(bert_config):
  """Checks the flags of this script; `bert_config` is for Google's callers.

  What all scripts have in common is checked in `multigpu.flags`.
  """
  del bert_config
  run_flags.check_case()
  if not FLAGS.do_train and not FLAGS.do_predict:
    raise UserError("Nothing to do: pass --do_train=True, --do_predict=True "
                    "or both.")
  for action, name in (("do_train", "train_file"),
                       ("do_predict", "predict_file")):
    path = FLAGS[name].value
    if FLAGS[action].value and not path:
      raise UserError("--{}=True needs --{}.".format(action, name))
    if FLAGS[action].value:
      file_kinds.check_text_file(path, name, "a JSON file of SQuAD")
  if run_flags.evaluates_in_training():
    _check_answers()
  squad_data.check_settings(_feature_settings())


def _check_answers():
  """Raises UserError unless evaluations have answers to compare with."""
  path = FLAGS.predict_file
  if not path or not squad_metrics.has_answers(
      path, FLAGS.version_2_with_negative):
    raise UserError(
        "--eval_every_steps={} needs a --predict_file that holds the answers "
        "of all its questions, and {} is given.".format(
            FLAGS.eval_every_steps, path or "none"))


def _feature_settings():
  return squad_data.FeatureSettings(
      FLAGS.max_seq_length, FLAGS.doc_stride, FLAGS.max_query_length)


def _read_some(name, is_training):
  """Reads the file of a flag; no question at all is an error."""
  path = FLAGS[name].value
  examples = read_squad_examples(path, is_training)
  if not examples:
    raise UserError(
        "--{}={}: it holds no question that can be used: give a file in SQuAD "
        "format with at least one.".format(name, path))
  if not is_training:
    # A mistake in its answers must not wait for the predictions.
    squad_metrics.read_gold_questions(path)
  return examples


def _write_rows(examples, tokenizer, file_name, is_training):
  """Featurizes examples into a record file; returns (Rows, their number)."""
  path = os.path.join(FLAGS.output_dir, file_name)
  num_rows = squad_pipeline.prepare_records(
      examples, tokenizer, _feature_settings(), path, is_training,
      FLAGS.num_workers or workers.count_cores())
  table = squad_data.record_table(FLAGS.max_seq_length, is_training)
  return Rows(path, table), num_rows


def train(run, tokenizer, examples, predict_examples):
  """Trains on the examples of --train_file."""
  plan = training.plan_training(
      len(examples), FLAGS.num_train_epochs, FLAGS.warmup_proportion,
      FLAGS.train_batch_size, run.devices.num_replicas,
      FLAGS.gradient_accumulation_steps)
  random.Random(EXAMPLE_SHUFFLE_SEED).shuffle(examples)
  rows, num_features = _write_rows(
      examples, tokenizer, "train.tf_record", is_training=True)
  training.log_start(plan, run.devices, num_features)
  scoring = None
  if run_flags.evaluates_in_training():
    predict_rows = _write_rows(predict_examples, tokenizer, "eval.tf_record",
                               is_training=False)
    scoring = Scoring(
        lambda run: squad_pipeline.score(
            answer(run, tokenizer, predict_examples, *predict_rows),
            FLAGS.predict_file, FLAGS.version_2_with_negative), _metrics())
  run.train(squad_head.squad_head, rows, plan, FLAGS.learning_rate, scoring)


def _metrics():
  return squad_metrics.list_metrics(FLAGS.version_2_with_negative)


def answer(run, tokenizer, examples, rows, num_features):
  """Answers examples with the weights of a run."""
  batches = run.predict(squad_head.squad_head, rows, num_features,
                        FLAGS.predict_batch_size)
  return squad_pipeline.answer(
      examples, tokenizer, _feature_settings(), squad_answers.AnswerSettings(
          FLAGS.n_best_size, FLAGS.max_answer_length, FLAGS.do_lower_case,
          FLAGS.version_2_with_negative, FLAGS.null_score_diff_threshold,
          FLAGS.verbose_logging), batches)


def predict(run, tokenizer, examples):
  """Answers the examples of --predict_file; scores them where it can."""
  rows, num_features = _write_rows(
      examples, tokenizer, "eval.tf_record", is_training=False)
  _LOG.info("***** Prediction *****\n  devices %s\n  examples %d\n"
            "  features %d\n  batch per replica %d",
            run.devices.describe_local(), len(examples), num_features,
            FLAGS.predict_batch_size)
  writer = answer(run, tokenizer, examples, rows, num_features)
  metrics = squad_pipeline.write_answers(
      writer, FLAGS.output_dir, FLAGS.predict_file,
      FLAGS.version_2_with_negative)
  if metrics is not None:
    run.add_scores_to_curves(metrics)
    print(json.dumps(metrics, indent=4))


def main(_):
  """Trains and predicts as the flags say."""
  validate_flags_or_throw(None)
  run = run_flags.set_up_run(_metrics())
  run.check_checkpoint(
      squad_head.squad_head,
      squad_data.record_table(FLAGS.max_seq_length, FLAGS.do_train),
      FLAGS.do_train)
  tokenizer = model_files.load_tokenizer(
      FLAGS.vocab_file, FLAGS.do_lower_case, run.bert_config)
  # Both at once: a mistake in the second file must not wait for the training.
  train_examples = FLAGS.do_train and _read_some("train_file", True)
  predict_examples = ((FLAGS.do_predict or run_flags.evaluates_in_training())
                      and _read_some("predict_file", False))
  run.make_output_dir()
  if FLAGS.do_train:
    train(run, tokenizer, train_examples, predict_examples)
  if FLAGS.do_predict and run.is_chief:
    predict(run, tokenizer, predict_examples)


if __name__ == "__main__":
  for required in ("vocab_file", "bert_config_file", "output_dir"):
    flags.mark_flag_as_required(required)
  cli.run(main)
