"""Checks the GPUs of this machine, and measures how training speeds up.

    python verify_gpus.py --num_gpus=2

Needs no files: a small BERT with random weights is trained on random rows, by 1
replica and by N on the same global batch, which must give the same losses and
weights with each all-reduce and in each precision; predictions must come in the
order of the input. Then training is timed on 1, 2, 4, ... N GPUs with the same
batch per GPU. Each check is a process of its own; one that hangs is ended.

--output_dir gets report.json and report.png, to attach to a bug report, and the
logs of all processes. The exit status is 0 when all that is available here
works. Without GPUs: --device_type=cpu. This file holds the flags and the
wiring; the checks are in multigpu/verification.py.
"""
import functools
import json
import os
import signal
import sys

import multigpu  # noqa: F401  (sets the environment for TensorFlow: first)
import tensorflow.compat.v1 as tf

from multigpu import cli
from multigpu import devices
from multigpu import gpu_report
from multigpu import session_options
from multigpu import verification
from multigpu import verification_jobs
from multigpu import watching
from multigpu.errors import UserError
from tasks.classifier_head import make_classifier_head

flags = tf.flags
FLAGS = flags.FLAGS

flags.DEFINE_integer("num_gpus", 1, "Number of GPUs (replicas) to check.",
                     lower_bound=1)
flags.DEFINE_enum(
    "device_type", "auto", list(devices.DEVICE_TYPES),
    "auto: GPUs where there are any, else the CPU. cpu: replicas on the CPU.")
flags.DEFINE_enum(
    "all_reduce", "auto", list(devices.ALL_REDUCE),
    "How gradients are summed in the measurement and in the checks of other "
    "things. Each choice is checked in any case.")
flags.DEFINE_enum(
    "precision", session_options.FP32, list(session_options.PRECISIONS),
    "Number format of the measurement. Each is checked in any case.")
flags.DEFINE_enum(
    "model", "auto", ["auto", "base", "small"],
    "Model of the measurement. base: the size of BERT-Base; small: 2 layers of "
    "width 128; auto: base on GPUs, small on CPUs.")
flags.DEFINE_integer(
    "batch_per_gpu", None, "Rows of each GPU in a step of the measurement. "
    "Default: 32 on GPUs, 8 on CPUs.", lower_bound=1)
flags.DEFINE_integer(
    "seq_length", 128, "Length of the rows in the measurement; no padding.",
    lower_bound=4, upper_bound=512)
flags.DEFINE_integer("speed_steps", 20, "Steps that are timed.", lower_bound=1)
flags.DEFINE_float(
    "step_timeout", 120.0, "Seconds after which a step counts as hanging; the "
    "building of the graph and the start of a process may take {} times "
    "that.".format(watching.OTHER_FACTOR), lower_bound=0.1)
flags.DEFINE_string("output_dir", "output/verify_gpus",
                    "Folder for the report; a local one.")
flags.DEFINE_string(
    "job", None, "For the program itself: do one check, given as JSON.")


def watch_job(job, log, step_timeout):
  """Runs a job as a process of this program."""
  command = [sys.executable, os.path.abspath(__file__),
             "--job=" + json.dumps(job._asdict())]
  return watching.watch(command, log, step_timeout)


def read_settings() -> verification.Settings:
  """The flags; what depends on the kind of device is not set yet.

  Raises:
    UserError: --output_dir is not a local folder.
  """
  if "://" in FLAGS.output_dir:
    raise UserError("--output_dir={}: the logs of the processes need a local "
                    "folder.".format(FLAGS.output_dir))
  return verification.Settings(
      num_gpus=FLAGS.num_gpus, output_dir=FLAGS.output_dir,
      device_type=FLAGS.device_type, all_reduce=FLAGS.all_reduce,
      precision=FLAGS.precision, seq_length=FLAGS.seq_length,
      speed_steps=FLAGS.speed_steps, step_timeout=FLAGS.step_timeout)


def choose_size(settings: verification.Settings,
                kind: str) -> verification.Settings:
  """Sets model and batch, by default those that fit the kind of device."""
  is_gpu = kind == "GPU"
  model = FLAGS.model
  if model == "auto":
    model = "base" if is_gpu else "small"
  return settings._replace(
      model=model, batch_per_gpu=FLAGS.batch_per_gpu or (32 if is_gpu else 8))


def verify() -> bool:
  """Checks, measures and writes the report; returns whether all is well."""
  settings = read_settings()
  watch = functools.partial(watch_job, step_timeout=settings.step_timeout)
  with verification.Verification(settings, watch) as checks:
    environment = dict(gpu_report.describe_machine(), **checks.find_devices())
    settings = choose_size(settings, environment["kind"])
    print("{}, TensorFlow {}, Python {}".format(
        environment["devices"], environment["tensorflow"],
        environment["python"]))
    report = gpu_report.Report(
        settings._asdict(), environment, checks.check_all(),
        checks.measure_speed(settings))
  print("\nModel {}, {} rows of length {} per GPU and step, {}".format(
      settings.model, settings.batch_per_gpu, settings.seq_length,
      settings.precision))
  print(gpu_report.format_table(report.speed))
  if environment["kind"] == "CPU":
    print("CPU replicas share the cores: their efficiency says nothing about "
          "GPUs.")
  print("\nReport:")
  for line in gpu_report.write(report, settings.output_dir):
    print("  " + line)
  print("all available checks passed" if report.passed else
        "SOME CHECKS DID NOT PASS: see above")
  return report.passed


def main(_) -> None:
  """Checks everything, or does one job for another process."""
  if FLAGS.job:
    verification_jobs.run(
        verification_jobs.Job(**json.loads(FLAGS.job)),
        lambda num_labels: make_classifier_head(num_labels, dropout_prob=0.0))
    return
  # So that a process that hangs does not outlive this one.
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
  if not verify():
    sys.exit(1)


if __name__ == "__main__":
  cli.run(main)
