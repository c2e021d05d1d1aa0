"""Flags that all run scripts share, and the settings made of them."""
import logging
import os
import sys
from typing import Any, Dict, Mapping, Optional

import tensorflow.compat.v1 as tf

from multigpu import by_length
from multigpu import devices
from multigpu import evaluation
from multigpu import flag_checks
from multigpu import folders
from multigpu import hosts
from multigpu import initial_checkpoint
from multigpu import model_files
from multigpu import padding
from multigpu import session_options
from multigpu import vocabulary
from multigpu.errors import UserError
from multigpu.meeting import Meeting
from multigpu.runs import Run
from optimization import ADAMW, DEFAULT_NUM_PACKS, OPTIMIZERS
import tokenization

FLAGS = tf.flags.FLAGS

# Google's flags for TPUs: name -> (definition, default). They are accepted, so
# that existing commands go on working, and have no effect.
_TPU_FLAGS = {
    "tpu_name": (tf.flags.DEFINE_string, None),
    "tpu_zone": (tf.flags.DEFINE_string, None),
    "gcp_project": (tf.flags.DEFINE_string, None),
    "master": (tf.flags.DEFINE_string, None),
    "num_tpu_cores": (tf.flags.DEFINE_integer, 8),
    "iterations_per_loop": (tf.flags.DEFINE_integer, 1000),
}


def define_run_flags() -> None:
  """Defines the flags about model, folder, devices, randomness and speed."""
  tf.flags.DEFINE_string(
      "bert_config_file", None,
      "The bert_config.json that came with the checkpoint.")
  tf.flags.DEFINE_string(
      "output_dir", None,
      "Folder for checkpoints, records and results. A run goes on from the "
      "newest checkpoint in it.")
  tf.flags.DEFINE_string(
      "init_checkpoint", None,
      "Checkpoint to start from, usually a pre-trained BERT (path without "
      "\".index\").")
  tf.flags.DEFINE_integer(
      "num_gpus", 1,
      "Number of GPUs (replicas). Batch sizes are per GPU: the global batch is "
      "train_batch_size x num_gpus. Other GPUs of the machine stay free.",
      lower_bound=1)
  tf.flags.DEFINE_enum(
      "device_type", "auto", list(devices.DEVICE_TYPES),
      "auto: GPUs where there are any, else the CPU. cpu: run num_gpus "
      "replicas on the CPU, for tests.")
  tf.flags.DEFINE_enum(
      "all_reduce", "auto", list(devices.ALL_REDUCE) + [devices.RING],
      "How gradients are summed over the GPUs. auto: NCCL where it works. Try "
      "hierarchical_copy or reduce_to_one when the first step hangs; ring on "
      "several hosts.")
  tf.flags.DEFINE_integer(
      "worker_timeout", 600,
      "Several hosts (TF_CONFIG): seconds to wait at the start for those that "
      "do not answer.", lower_bound=1)
  tf.flags.DEFINE_integer(
      "seed", 0,
      "Seed of the initial weights, the order of the rows and dropout.")
  tf.flags.DEFINE_integer(
      "save_checkpoints_steps", 1000,
      "How often to save the model checkpoint, in weight updates.",
      lower_bound=1)
  tf.flags.DEFINE_bool(
      "strict", False,
      "End with an error where rows of the data cannot be used, instead of "
      "naming them and going on without them.")
  tf.flags.DEFINE_bool(
      "use_tpu", False, "There is no TPU support: true is an error.")
  for name, (define, default) in _TPU_FLAGS.items():
    define(name, default, "Accepted for old commands; has no effect.")
  _define_evaluation_flags()
  _define_optimizer_flag()
  _define_speed_flags()


def _define_evaluation_flags() -> None:
  tf.flags.DEFINE_integer(
      "keep_checkpoint_max", 5,
      "Checkpoints to keep; when there are more, the oldest is deleted. 0: all "
      "are kept.", lower_bound=0)
  tf.flags.DEFINE_integer(
      "eval_every_steps", 0,
      "Evaluate during the training: after every so many weight updates and at "
      "its end. 0: never.", lower_bound=0)
  tf.flags.DEFINE_string(
      "keep_best", "",
      "Keep the weights of the evaluation with the best value of this metric "
      "in output_dir/best; do_eval and do_predict use them. The name is one of "
      "eval_results; a wrong one lists all.")
  tf.flags.DEFINE_integer(
      "early_stopping_patience", 0,
      "End the training when so many evaluations in a row were no better than "
      "the best one. 0: never.", lower_bound=0)


def _define_optimizer_flag() -> None:
  tf.flags.DEFINE_enum(
      "optimizer", ADAMW, list(OPTIMIZERS),
      "adamw: as BERT was trained. lamb: for global batches of thousands of "
      "rows, as in large-batch pre-training, with a learning rate of its own.")


def _define_speed_flags() -> None:
  tf.flags.DEFINE_bool(
      "bucket_by_length", False,
      "Training: rows of similar length come together in a global batch, so "
      "that less padding is computed. The rows come in another order than "
      "without it, the same for every number of GPUs with one global batch: "
      "windows of up to {} global batches are sorted by length and their "
      "batches shuffled. No use for SQuAD, whose loss reads the "
      "padding.".format(by_length.WINDOW_BATCHES))
  tf.flags.DEFINE_integer(
      "gradient_accumulation_steps", 1,
      "Micro-batches of train_batch_size rows that each GPU computes for one "
      "weight update: the global batch is train_batch_size x num_gpus x this, "
      "with the memory of train_batch_size rows.", lower_bound=1)
  tf.flags.DEFINE_enum(
      "precision", session_options.FP32, list(session_options.PRECISIONS),
      "Number format of the computation; weights stay float32. fp16: GPUs from "
      "Volta on, with dynamic loss scaling. bf16: CPUs with AVX-512, "
      "TensorFlow 2.")
  tf.flags.DEFINE_bool(
      "use_xla", False,
      "Compile with XLA: fewer and larger kernels, after a slow first step.")
  tf.flags.DEFINE_integer(
      "all_reduce_packs", DEFAULT_NUM_PACKS,
      "Pieces in which gradients are averaged over the GPUs, those of the last "
      "layers first, while the others are still computed.", lower_bound=1)


def device_settings() -> devices.DeviceSettings:
  """The devices asked for; checks and reports the TPU flags.

  Raises:
    UserError: --use_tpu is set.
  """
  if FLAGS.use_tpu:
    raise UserError("--use_tpu=true: this program runs on GPUs and CPUs. Leave "
                    "the flag out and pass --num_gpus=N; for TPUs use Google's "
                    "own scripts.")
  ignored = [name for name in _TPU_FLAGS if _was_set(name)]
  if ignored:
    logging.getLogger(__name__).warning(
        "TPU flags have no effect here: %s",
        ", ".join("--" + name for name in ignored))
  return devices.DeviceSettings(
      num_gpus=FLAGS.num_gpus, device_type=FLAGS.device_type,
      all_reduce=FLAGS.all_reduce, precision=FLAGS.precision,
      use_xla=FLAGS.use_xla)


def evaluates_in_training() -> bool:
  """Whether evaluations during a training are asked for."""
  return FLAGS.do_train and FLAGS.eval_every_steps > 0


def evaluation_settings(
    metrics: Mapping[str, bool]) -> evaluation.EvaluationSettings:
  """What to evaluate during the training and what to keep of it.

  Args:
    metrics: {name: whether more is better} of the task.

  Raises:
    UserError: the flags contradict, the task has no such metric, or output_dir
      holds the best weights by another one.
  """
  metric = FLAGS.keep_best
  if metric and FLAGS.do_train and not FLAGS.eval_every_steps:
    raise UserError("--keep_best={} chooses among evaluations: pass "
                    "--eval_every_steps as well.".format(metric))
  if FLAGS.early_stopping_patience and not metric:
    raise UserError(
        "--early_stopping_patience={} needs to know what is better: pass "
        "--keep_best=METRIC, one of {}.".format(
            FLAGS.early_stopping_patience, ", ".join(sorted(metrics))))
  evaluation.check_metric(metric, metrics)
  if metric:
    evaluation.check_best(FLAGS.output_dir, metric,
                          must_exist=not FLAGS.do_train)
  return evaluation.EvaluationSettings(
      FLAGS.eval_every_steps, metric, FLAGS.early_stopping_patience)


def check_case(init_checkpoint: Optional[str] = None) -> None:
  """Raises UserError if --do_lower_case does not fit the checkpoint's name."""
  try:
    tokenization.validate_case_matches_checkpoint(
        FLAGS.do_lower_case, init_checkpoint or FLAGS.init_checkpoint)
  except ValueError as error:
    raise UserError(str(error)) from error


def set_up_run(metrics: Mapping[str, bool]) -> Run:
  """Checks the shared flags and takes the devices; writes nothing.

  Args:
    metrics: {name: whether more is better} of the task.

  Raises:
    UserError: a flag, the configuration or the checkpoint is wrong.
  """
  _check_values()
  bert_config = model_files.read_bert_config(FLAGS.bert_config_file)
  if FLAGS.max_seq_length > bert_config.max_position_embeddings:
    raise UserError(
        "--max_seq_length={}, but the model has only {} positions "
        "(max_position_embeddings in --bert_config_file): pass {} or "
        "less.".format(FLAGS.max_seq_length,
                       bert_config.max_position_embeddings,
                       bert_config.max_position_embeddings))
  if "vocab_file" in FLAGS:
    model_files.check_vocabulary(
        FLAGS.vocab_file, bert_config,
        vocabulary.Case(FLAGS.do_lower_case, _was_set("do_lower_case")))
  start = initial_checkpoint.check_init_checkpoint(
      FLAGS.init_checkpoint, bert_config)
  if "do_lower_case" in FLAGS:
    check_case(start)
    # A program that reads text fine-tunes; pre-training may begin from nothing.
    if FLAGS.do_train and not start:
      initial_checkpoint.warn_of_random_weights(FLAGS.output_dir)
  settings = evaluation_settings(metrics)
  found = _find_hosts(settings)
  taken = devices.set_up(device_settings(), found)
  meeting = None
  if found:
    FLAGS.output_dir = found.own_dir(FLAGS.output_dir)
    meeting = Meeting(found, FLAGS.worker_timeout)
    meeting.join()
  return Run(
      devices=taken, meeting=meeting, bert_config=bert_config,
      output_dir=FLAGS.output_dir, init_checkpoint=start,
      save_checkpoints_steps=FLAGS.save_checkpoints_steps, seed=FLAGS.seed,
      bucket_by_length=FLAGS.bucket_by_length, precision=FLAGS.precision,
      # XLA compiles each length by itself.
      length_multiple=(padding.LENGTH_MULTIPLE_XLA if FLAGS.use_xla
                       else padding.LENGTH_MULTIPLE),
      num_packs=FLAGS.all_reduce_packs, optimizer=FLAGS.optimizer,
      keep_checkpoint_max=FLAGS.keep_checkpoint_max, evaluations=settings)


def _find_hosts(settings: evaluation.EvaluationSettings
                ) -> Optional[hosts.Hosts]:
  """The hosts that train together, None for a run on this one alone."""
  found = hosts.read(os.environ)
  # TensorFlow must not find them where this host works alone.
  os.environ.pop(hosts.TF_CONFIG, None)
  if found and FLAGS.do_train and settings.every_steps:
    raise UserError(
        "--eval_every_steps={} evaluates during a training on one host only, "
        "and TF_CONFIG names {}: leave the flag out; the chief evaluates after "
        "the training.".format(settings.every_steps, found.size))
  if found is None or FLAGS.do_train:
    return found
  logging.getLogger(__name__).info(
      "TF_CONFIG names %d hosts, and without --do_train only the chief has "
      "something to do. This is %s.", found.size, found.describe())
  if not found.is_chief:
    sys.exit(0)
  return None


def _check_values() -> None:
  values = flag_values()
  flag_checks.check(values, [name for name in values if _was_set(name)])
  flag_checks.warn_of_repeats({name: FLAGS[name].present for name in values},
                              values)
  folders.check_output_dir(FLAGS.output_dir, {
      name: values[name] for name in ("train_file", "predict_file", "data_dir")
      if name in values})


def flag_values() -> Dict[str, Any]:
  """{flag: value} of the program."""
  return FLAGS.flag_values_dict()


def _was_set(name: str) -> bool:
  return bool(FLAGS[name].present)
