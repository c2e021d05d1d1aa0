"""What `verify_gpus.py` runs in processes of its own: small trainings.

Rows and weights are random, from a seed. The parts are those of a real run:
records, devices, `model_fn`, training and prediction. The checks that compare
the results are in `multigpu.verification`.
"""
import os
import resource
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from multigpu import devices as devices_lib
from multigpu import records
from multigpu import runs
from multigpu import session_options
from multigpu import training
from multigpu import watching
from multigpu.errors import UserError
from multigpu.head import Head
from multigpu.model_fn import ModelSettings, build_model_fn
from multigpu.sequences import SequenceLength

DEVICES, TRAINING, PREDICTION, SPEED = (
    "devices", "training", "prediction", "speed")
TINY = "tiny"
SEED = 1
# High: the loss must fall by much, or nothing could be told from it (from 2.08
# to 1.18 in the steps of a check).
LEARNING_RATE = 3e-3

_NO_DROPOUT: Dict[str, Any] = dict(
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
MODELS: Dict[str, Dict[str, Any]] = {
    TINY: dict(vocab_size=99, hidden_size=32, num_hidden_layers=2,
               num_attention_heads=2, intermediate_size=64,
               max_position_embeddings=512, **_NO_DROPOUT),
    "small": dict(vocab_size=5000, hidden_size=128, num_hidden_layers=2,
                  num_attention_heads=2, intermediate_size=512),
    # BERT-Base, uncased.
    "base": dict(vocab_size=30522, hidden_size=768, num_hidden_layers=12,
                 num_attention_heads=12, intermediate_size=3072),
}


class Job(NamedTuple):
  """One process; travels as JSON."""
  kind: str
  work_dir: str  # exists and is empty; the caller removes it
  num_replicas: int
  device_type: str = "auto"
  all_reduce: str = "auto"
  precision: str = session_options.FP32
  accumulation_steps: int = 1
  model: str = TINY
  batch_per_gpu: int = 4
  seq_length: int = 32
  num_steps: int = 8
  # Training takes them again and again; their number is that of the labels.
  num_rows: int = 8


def run(job: Job, make_head: Callable[[int], Head]) -> None:
  """Does a job and reports what it found to the process that watches.

  Args:
    job: what to do.
    make_head: takes the number of labels; returns a head for the feature
      `label_ids`, int32 [batch_size], whose predictions are `label_ids` and
      `losses`, both [batch_size]. Without dropout.
  """
  try:
    watching.report(phase="the set-up of the devices")
    if job.kind != SPEED:
      _switch_off_tf32()
    found = devices_lib.set_up(devices_lib.DeviceSettings(
        job.num_replicas, job.device_type, job.all_reduce, job.precision))
    work = {DEVICES: _describe, TRAINING: _train, SPEED: _train,
            PREDICTION: _predict}[job.kind]
    result = work(job, make_head(job.num_rows), found)
    watching.report(result=result)
  except UserError as error:
    watching.report(unavailable=str(error))
  except Exception as error:
    first_lines = str(error).strip().splitlines()[:3]
    watching.report(error="{}: {}".format(
        type(error).__name__, " ".join(first_lines)))
    raise


def _switch_off_tf32() -> None:
  """Full float32: with TF32 the last digits depend on the batch."""
  switch = getattr(tf.config.experimental,
                   "enable_tensor_float_32_execution", None)
  if switch:
    switch(False)


def _describe(job: Job, head: Head, found: Any) -> Dict[str, Any]:
  """The versions of this process, and what CUDA TensorFlow was built for."""
  del job, head
  read_build: Any = getattr(tf.sysconfig, "get_build_info", dict)
  build = read_build()
  return {
      "kind": found.kind, "devices": found.describe(),
      "tensorflow": tf.__version__, "python": sys.version.split()[0],
      "numpy": np.__version__,
      "tensorflow_build": {
          key: str(build[key]) for key in ("cuda_version", "cudnn_version",
                                           "cuda_compute_capabilities")
          if key in build}}


def _train(job: Job, head: Head, found: Any) -> Dict[str, Any]:
  """Trains; the newest checkpoint in work_dir has the weights."""
  rows = _write_rows(job)
  plan = training.TrainPlan(
      per_replica_batch_size=job.batch_per_gpu, num_replicas=job.num_replicas,
      num_train_steps=job.num_steps, num_warmup_steps=0,
      accumulation_steps=job.accumulation_steps)
  hook = _StepHook()
  watching.report(phase="the building of the graph")
  training.train(
      build_model_fn(head, ModelSettings(
          bert_config=modeling.BertConfig(**MODELS[job.model]),
          learning_rate=LEARNING_RATE, num_train_steps=job.num_steps,
          num_warmup_steps=0, seed=SEED, precision=job.precision,
          accumulation_steps=job.accumulation_steps)),
      lambda params: records.training_dataset(
          rows.paths, rows.table, params["batch_size"],
          records.TrainingOrder(SEED)),
      found, plan, training.RunSettings(
          job.work_dir, save_checkpoints_steps=job.num_steps + 1, seed=SEED),
      extra_hooks=[hook])
  return {"losses": hook.losses, "step_seconds": hook.seconds,
          "num_skipped": hook.num_skipped, "peak_memory": _peak_memory(found)}


def _predict(job: Job, head: Head, found: Any) -> Dict[str, Any]:
  """Predicts with random weights; the label of a row is its number."""
  rows = _write_rows(job)
  run_ = runs.Run(found, modeling.BertConfig(**MODELS[job.model]), job.work_dir,
                  seed=SEED)
  watching.report(phase="the prediction")
  rounds = list(run_.predict(head, rows, job.num_rows, job.batch_per_gpu))
  return {name: np.concatenate([part[name] for part in rounds]).tolist()
          for name in ("label_ids", "losses")}


def _write_rows(job: Job) -> runs.Rows:
  """Makes a record file; speed is measured on rows without padding."""
  sequence = ((SequenceLength(job.seq_length),), "int64")
  table: records.RecordTable = {
      "input_ids": sequence, "input_mask": sequence, "segment_ids": sequence,
      "label_ids": ((), "int64")}
  path = os.path.join(job.work_dir, "rows.tf_record")
  random = np.random.RandomState(SEED)
  shortest = job.seq_length if job.kind == SPEED else 4
  with records.RecordWriter(path, table) as writer:
    for i in range(job.num_rows):
      length = random.randint(shortest, job.seq_length + 1)
      mask = np.arange(job.seq_length) < length
      ids = random.randint(1, MODELS[job.model]["vocab_size"], job.seq_length)
      segments = np.arange(job.seq_length) >= length // 2
      writer.write({
          "input_ids": (ids * mask).tolist(),
          "input_mask": mask.astype(int).tolist(),
          "segment_ids": (segments & mask).astype(int).tolist(),
          "label_ids": [i]})
  return runs.Rows(path, table)


class _StepHook(tf.train.SessionRunHook):
  """Reports each step before it runs; keeps its loss and its time."""

  def __init__(self):
    self.losses: List[float] = []
    self.seconds: List[float] = []
    self.num_skipped = 0
    self._last_step = 0

  def begin(self):
    self._loss = tf.get_collection(tf.GraphKeys.LOSSES)[-1]
    self._step = tf.train.get_global_step()

  def before_run(self, run_context):
    watching.report(phase="step {}".format(len(self.seconds) + 1), is_step=True)
    self._begin = time.monotonic()
    return tf.train.SessionRunArgs(self._loss)

  def after_run(self, run_context, run_values):
    self.seconds.append(time.monotonic() - self._begin)
    step = int(run_context.session.run(self._step))
    if step == self._last_step:  # fp16: the gradient was not finite
      self.num_skipped += 1
      return
    self._last_step = step
    self.losses.append(float(run_values.results))

  def end(self, session):
    watching.report(phase="the saving of the weights")


def _peak_memory(found: Any) -> Dict[str, int]:
  """{device: bytes}; empty where the runtime does not tell."""
  if found.kind == "CPU":
    # Linux counts in units of 1024 bytes.
    return {"process": resource.getrusage(
        resource.RUSAGE_SELF).ru_maxrss * 1024}
  read = getattr(tf.config.experimental, "get_memory_info", None)
  if read is None:
    return {}
  names = ["GPU:{}".format(i) for i in range(found.num_replicas)]
  try:
    return {name: int(read(name)["peak"]) for name in names}
  except (ValueError, RuntimeError, tf.errors.OpError):
    return {}
