"""Fine-tunes BERT on sentence classification, on one or several GPUs.

The command line of Google's run_classifier.py plus --num_gpus:

    python run_classifier_multigpu.py \\
      --task_name=MRPC --data_dir=glue/MRPC --output_dir=output/mrpc \\
      --vocab_file=uncased_L-12_H-768_A-12/vocab.txt \\
      --bert_config_file=uncased_L-12_H-768_A-12/bert_config.json \\
      --init_checkpoint=uncased_L-12_H-768_A-12/bert_model.ckpt \\
      --do_train=True --do_eval=True --do_predict=True \\
      --max_seq_length=128 --train_batch_size=16 --num_gpus=2 \\
      --learning_rate=2e-5 --num_train_epochs=3.0

Your own data (train, dev, test with .tsv or .csv and a header line):

    python run_classifier_multigpu.py --task_name=tsv --data_dir=my_data \\
      --text_a_column=text --label_column=category ...

Batch sizes are per GPU. This file holds the flags and the wiring; the task is
in tasks/classifier_*.py, devices are in multigpu/.
"""
import logging
import os
from typing import Dict, List

import numpy as np
import multigpu  # noqa: F401  (sets the environment for TensorFlow: first)
import tensorflow.compat.v1 as tf

import modeling
from multigpu import checkpoints
from multigpu import cli
from multigpu import flags as run_flags
from multigpu import folders
from multigpu import initial_checkpoint
from multigpu import model_files
from multigpu import records
from multigpu import training
from multigpu.errors import UserError
from multigpu.evaluation import Scoring
from multigpu.model_fn import ModelSettings, build_model_fn
from multigpu.runs import Rows
from tasks import classifier_data
from tasks import classifier_head
from tasks import classifier_metrics
from tasks import classifier_pipeline
from tasks import classifier_tsv
from tasks import workers
from tasks.classifier_data import (CLASSES, InputExample, InputFeatures,
                                   PaddingInputExample, _truncate_seq_pair,
                                   convert_examples_to_features,
                                   convert_single_example)
from tasks.classifier_processors import (PROCESSORS, ColaProcessor,
                                         DataProcessor, MnliProcessor,
                                         MrpcProcessor, XnliProcessor,
                                         describe_header_rows)

__all__ = [
    "ColaProcessor", "DataProcessor", "InputExample", "InputFeatures",
    "MnliProcessor", "MrpcProcessor", "PaddingInputExample", "XnliProcessor",
    "_truncate_seq_pair", "convert_examples_to_features",
    "convert_single_example", "create_model",
    "file_based_convert_examples_to_features", "file_based_input_fn_builder",
    "input_fn_builder", "main", "model_fn_builder"]

_LOG = logging.getLogger(__name__)

TSV = "tsv"

flags = tf.flags
FLAGS = flags.FLAGS

flags.DEFINE_string(
    "data_dir", None,
    "Folder with the task's files. " + describe_header_rows())
flags.DEFINE_string(
    "task_name", None, "One of {}; or tsv for files of your own.".format(
        ", ".join(sorted(PROCESSORS))))
flags.DEFINE_string("vocab_file", None, "The vocabulary of the checkpoint.")
flags.DEFINE_bool("do_lower_case", True,
                  "Lower-case the text: true for uncased models.")
flags.DEFINE_integer("max_seq_length", 128,
                     "Longest input in word pieces; longer ones are cut.")
flags.DEFINE_bool("do_train", False, "Train.")
flags.DEFINE_bool("do_eval", False, "Score the dev set.")
flags.DEFINE_bool("do_predict", False, "Predict the test set.")
flags.DEFINE_integer("train_batch_size", 32, "Training batch of one GPU.",
                     lower_bound=1)
flags.DEFINE_integer("eval_batch_size", 8, "Evaluation batch of one GPU.",
                     lower_bound=1)
flags.DEFINE_integer("predict_batch_size", 8, "Prediction batch of one GPU.",
                     lower_bound=1)
flags.DEFINE_float("learning_rate", 5e-5, "Highest learning rate of Adam.")
flags.DEFINE_float("num_train_epochs", 3.0, "Passes over the examples.")
flags.DEFINE_float(
    "warmup_proportion", 0.1,
    "Share of the training steps in which the learning rate rises linearly.")
flags.DEFINE_string("text_a_column", "",
                    "tsv: name of the column with the text.")
flags.DEFINE_string("text_b_column", "",
                    "tsv: name of the column with the second text, if any.")
flags.DEFINE_string("label_column", "", "tsv: name of the column with labels.")
flags.DEFINE_bool(
    "multi_label", False,
    "tsv: a row has any number of labels, separated by commas.")
flags.DEFINE_integer(
    "num_workers", None,
    "Processes that make features, where there are many to make; the records "
    "are the same for any number. Default: the number of cores.",
    lower_bound=1)
run_flags.define_run_flags()
# So that --help shows them too.
flags.adopt_module_key_flags(run_flags)


def create_model(bert_config, is_training, input_ids, input_mask, segment_ids,
                 labels, num_labels, use_one_hot_embeddings):
  """Returns (loss, losses, logits, probabilities) of a batch."""
  model = modeling.BertModel(
      config=bert_config, is_training=is_training, input_ids=input_ids,
      input_mask=input_mask, token_type_ids=segment_ids,
      use_one_hot_embeddings=use_one_hot_embeddings)
  logits = classifier_head.classifier_logits(
      model, num_labels, classifier_head.HEAD_DROPOUT if is_training else 0.0)
  losses, probabilities = classifier_head.losses_and_probabilities(
      logits, labels, CLASSES)
  return tf.reduce_mean(losses), losses, logits, probabilities


def model_fn_builder(bert_config, num_labels, init_checkpoint, learning_rate,
                     num_train_steps, num_warmup_steps, use_tpu,
                     use_one_hot_embeddings, *, seed=0):
  """Returns the `model_fn` for Estimator; `use_tpu` must be false."""
  if use_tpu:
    raise ValueError("use_tpu=True: this model_fn is for GPUs and CPUs.")
  return build_model_fn(
      classifier_head.make_classifier_head(num_labels), ModelSettings(
          bert_config=bert_config, init_checkpoint=init_checkpoint,
          learning_rate=learning_rate, num_train_steps=num_train_steps,
          num_warmup_steps=num_warmup_steps,
          use_one_hot_embeddings=use_one_hot_embeddings, seed=seed))


def file_based_convert_examples_to_features(examples, label_list,
                                            max_seq_length, tokenizer,
                                            output_file):
  """Featurizes examples into a TFRecord file; returns their number."""
  return classifier_pipeline.write_records(
      examples, label_list, max_seq_length, tokenizer, output_file)


def file_based_input_fn_builder(input_file, seq_length, is_training,
                                drop_remainder):
  """Returns an `input_fn(params)`; `params["batch_size"]` is per replica."""
  del drop_remainder
  # The names of classes do not matter to the layout.
  table = classifier_data.record_table(seq_length, [])

  def input_fn(params):
    if is_training:
      return records.training_dataset(
          input_file, table, params["batch_size"], records.TrainingOrder())
    return records.inference_dataset(input_file, table, params["batch_size"],
                                     records.count_rows(input_file))

  return input_fn


def input_fn_builder(features, seq_length, is_training, drop_remainder):
  """Returns an `input_fn(params)` over a list of InputFeatures."""
  del seq_length
  columns = {
      name: np.array([getattr(feature, attribute) for feature in features],
                     np.int32)
      for name, attribute in (
          ("input_ids", "input_ids"), ("input_mask", "input_mask"),
          ("segment_ids", "segment_ids"), ("label_ids", "label_id"))}

  def input_fn(params):
    dataset = tf.data.Dataset.from_tensor_slices(columns)
    if is_training:
      dataset = dataset.shuffle(len(features), seed=0).repeat()
    return dataset.batch(params["batch_size"], drop_remainder=drop_remainder)

  return input_fn


def _check_flags():
  """Checks the flags of this script, before anything is read."""
  run_flags.check_case()
  if not (FLAGS.do_train or FLAGS.do_eval or FLAGS.do_predict):
    raise UserError("Nothing to do: pass --do_train=True, --do_eval=True or "
                    "--do_predict=True.")
  folders.check_folder(FLAGS.data_dir, "data_dir",
                       "the folder with the files of the task")
  if FLAGS.task_name.lower() != TSV:
    for name in ("text_a_column", "text_b_column", "label_column",
                 "multi_label"):
      if FLAGS[name].value:
        raise UserError("--{}={} is only for --task_name=tsv, but this is "
                        "--task_name={}: the columns of that task are "
                        "fixed.".format(name, FLAGS[name].value,
                                        FLAGS.task_name))


def _make_processor():
  """The processor of --task_name; with the labels where it needs them."""
  name = FLAGS.task_name.lower()
  if name in PROCESSORS:
    return PROCESSORS[name]()
  if name != TSV:
    raise UserError("--task_name={}, wanted one of {}, or tsv for files of "
                    "your own.".format(FLAGS.task_name,
                                       ", ".join(sorted(PROCESSORS))))
  # A trained model has its labels in a fixed order: new ones are an error.
  labels = []
  is_trained = checkpoints.latest_step(FLAGS.output_dir) or not FLAGS.do_train
  if is_trained and tf.io.gfile.exists(_label_file()):
    labels = classifier_tsv.read_labels(_label_file())
  processor = classifier_tsv.TsvProcessor(classifier_tsv.TsvSettings(
      FLAGS.text_a_column, FLAGS.text_b_column, FLAGS.label_column,
      FLAGS.multi_label), labels)
  if not labels:
    processor.find_labels(FLAGS.data_dir)
  return processor


def _label_file():
  return os.path.join(FLAGS.output_dir, "labels.txt")


def _read_examples(processor) -> Dict[str, List[InputExample]]:
  """Reads all sets that the flags need, before anything is written."""
  readers = {"train": (FLAGS.do_train, processor.get_train_examples),
             "eval": (FLAGS.do_eval or run_flags.evaluates_in_training(),
                      processor.get_dev_examples),
             "predict": (FLAGS.do_predict, processor.get_test_examples)}
  return {name: read(FLAGS.data_dir)
          for name, (wanted, read) in readers.items() if wanted}


def _write_rows(name, examples, labels, tokenizer):
  path = os.path.join(FLAGS.output_dir, name + ".tf_record")
  classifier_pipeline.prepare_records(
      examples, labels, FLAGS.max_seq_length, tokenizer, path,
      FLAGS.num_workers or workers.count_cores())
  return Rows(path, classifier_data.record_table(FLAGS.max_seq_length, labels))


def _log_rows(title, run, examples, batch_size):
  _LOG.info("***** %s *****\n  devices %s\n  examples %d\n  batch per replica "
             "%d", title, run.devices.describe_local(), len(examples),
             batch_size)


def score(run, head, rows, examples, labels):
  """Scores the weights of a run on the dev set; each example counts once."""
  batches = list(run.predict(head, rows, len(examples), FLAGS.eval_batch_size,
                             title="evaluate"))
  probabilities, losses, label_ids = (
      np.concatenate([batch[name] for batch in batches])
      for name in ("probabilities", "losses", "label_ids"))
  return classifier_metrics.collect_results(
      classifier_metrics.score(FLAGS.task_name.lower(), labels.kind, label_ids,
                               probabilities),
      classifier_metrics.mean_losses(losses, FLAGS.eval_batch_size),
      run.checkpoint_step())


def evaluate(run, head, rows, examples, labels):
  """Scores the dev set and writes the results."""
  _log_rows("Evaluation", run, examples, FLAGS.eval_batch_size)
  results = score(run, head, rows, examples, labels)
  classifier_metrics.write_eval_results(FLAGS.output_dir, results)
  run.add_scores_to_curves(results)
  print(classifier_metrics.format_eval_results(results), end="")


def predict(run, head, rows, examples):
  """Writes the probabilities of the test set, in its order."""
  _log_rows("Prediction", run, examples, FLAGS.predict_batch_size)
  path = os.path.join(FLAGS.output_dir, "test_results.tsv")
  classifier_metrics.write_test_results(path, (
      batch["probabilities"] for batch in run.predict(
          head, rows, len(examples), FLAGS.predict_batch_size)))
  _LOG.info("Probabilities are in %s", path)


def main(_):
  """Trains, evaluates and predicts as the flags say."""
  _check_flags()
  processor = _make_processor()
  processor.strict = FLAGS.strict
  metrics = classifier_metrics.list_metrics(
      FLAGS.task_name.lower(), processor.label_kind)
  run = run_flags.set_up_run(metrics)
  examples = _read_examples(processor)
  tokenizer = model_files.load_tokenizer(
      FLAGS.vocab_file, FLAGS.do_lower_case, run.bert_config)
  plan = None
  if FLAGS.do_train:
    plan = training.plan_training(
        len(examples["train"]), FLAGS.num_train_epochs,
        FLAGS.warmup_proportion, FLAGS.train_batch_size,
        run.devices.num_replicas,
        FLAGS.gradient_accumulation_steps)
  labels = processor.get_label_set()
  initial_checkpoint.check_labels(run.init_checkpoint, run.bert_config,
                                  labels.num_outputs)
  head = classifier_head.make_classifier_head(labels.num_outputs, labels.kind)
  run.check_checkpoint(
      head, classifier_data.record_table(FLAGS.max_seq_length, labels),
      FLAGS.do_train)
  run.make_output_dir()
  if FLAGS.task_name.lower() == TSV:
    classifier_tsv.write_labels(_label_file(), labels.names)
  rows = {name: _write_rows(name, some, labels, tokenizer)
          for name, some in examples.items()}
  if plan:
    training.log_start(plan, run.devices)
    run.train(head, rows["train"], plan, FLAGS.learning_rate, Scoring(
        lambda run: score(run, head, rows["eval"], examples["eval"], labels),
        metrics))
  if FLAGS.do_eval and run.is_chief:
    evaluate(run, head, rows["eval"], examples["eval"], labels)
  if FLAGS.do_predict and run.is_chief:
    predict(run, head, rows["predict"], examples["predict"])


if __name__ == "__main__":
  for required in ("data_dir", "task_name", "vocab_file", "bert_config_file",
                   "output_dir"):
    flags.mark_flag_as_required(required)
  cli.run(main)
