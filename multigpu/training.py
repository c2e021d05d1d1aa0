"""Training through Estimator: the only place that uses it."""
import logging
import os
import sys
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from multigpu import checkpoints
from multigpu import files
from multigpu import hooks
from multigpu import interruption
from multigpu import saving
from multigpu import waiting
from multigpu.devices import Devices
from multigpu.errors import UserError

_LOG = logging.getLogger(__name__)

# As after a SIGTERM, so that whoever started the hosts starts them again.
_STATUS_STOPPED = 143


class TrainPlan(NamedTuple):
  """The arithmetic of a training run, done once."""
  per_replica_batch_size: int
  num_replicas: int
  num_train_steps: int
  num_warmup_steps: int
  # None where the user gives steps instead of epochs.
  num_examples: Optional[int] = None
  num_train_epochs: Optional[float] = None
  # Micro-batches of per_replica_batch_size rows that a replica computes for one
  # update.
  accumulation_steps: int = 1

  @property
  def global_batch_size(self) -> int:
    """Rows of one weight update."""
    return self.rows_per_replica * self.num_replicas

  @property
  def rows_per_replica(self) -> int:
    """Rows that one replica takes for one weight update."""
    return self.per_replica_batch_size * self.accumulation_steps


class RunSettings(NamedTuple):
  """Where a run keeps its state, and how often."""
  output_dir: str
  save_checkpoints_steps: int = 1000
  seed: int = 0
  # Older ones are deleted; 0 = none is.
  keep_checkpoint_max: int = 5
  # Several hosts: whether this one is to stop; then all do, after one step.
  is_asked_to_stop: Callable[[], bool] = interruption.is_asked


def plan_training(num_examples: int, num_train_epochs: float,
                  warmup_proportion: float, per_replica_batch_size: int,
                  num_replicas: int, accumulation_steps: int = 1) -> TrainPlan:
  """Turns epochs into weight updates.

  One update takes the global batch: per-replica batch x replicas x accumulation
  steps. So the same epochs are fewer updates on more replicas.

  Raises:
    UserError: not even one update.
  """
  global_batch_size = (
      per_replica_batch_size * num_replicas * accumulation_steps)
  num_train_steps = int(num_examples / global_batch_size * num_train_epochs)
  if num_train_steps < 1:
    raise UserError(
        "{} examples x --num_train_epochs={} / global batch {} "
        "(--train_batch_size={} x {} replicas{}) = 0 training steps: lower "
        "--train_batch_size or raise --num_train_epochs.".format(
            num_examples, num_train_epochs, global_batch_size,
            per_replica_batch_size, num_replicas,
            _describe_accumulation(accumulation_steps)))
  return TrainPlan(
      per_replica_batch_size=per_replica_batch_size,
      num_replicas=num_replicas,
      num_train_steps=num_train_steps,
      num_warmup_steps=int(num_train_steps * warmup_proportion),
      num_examples=num_examples,
      num_train_epochs=num_train_epochs,
      accumulation_steps=accumulation_steps)


def _describe_accumulation(accumulation_steps: int) -> str:
  return ("" if accumulation_steps == 1 else
          " x {} accumulation steps".format(accumulation_steps))


def log_start(plan: TrainPlan, devices: Devices,
              num_features: Optional[int] = None) -> None:
  """Logs one block that says what is about to be trained."""
  lines = [
      ("devices", devices.describe()),
      ("batch per " + ("GPU" if devices.kind == "GPU" else "replica"),
       plan.per_replica_batch_size),
      ("global batch", "= {} ({} x {}{})".format(
          plan.global_batch_size, plan.per_replica_batch_size,
          plan.num_replicas, _describe_accumulation(plan.accumulation_steps))),
      ("examples", plan.num_examples),
      ("features", num_features),
      ("epochs", plan.num_train_epochs),
      ("steps", plan.num_train_steps),
      ("warm-up steps", plan.num_warmup_steps)]
  _LOG.info("***** Training *****\n%s", "\n".join(
      "  {} {}".format(name, value) for name, value in lines
      if value is not None))


# Without AutoGraph: it would rewrite the model_fn for nothing and put its own
# exceptions in the place of ours.
@tf.autograph.experimental.do_not_convert
def train(model_fn: Callable[..., Any], input_fn: Callable[..., Any],
          devices: Devices, plan: TrainPlan, settings: RunSettings,
          extra_hooks: Sequence[Any] = ()) -> None:
  """Trains up to `plan.num_train_steps`, going on from a checkpoint.

  Args:
    model_fn: see `model_fn.build_model_fn`.
    input_fn: takes params (`batch_size` is plan.rows_per_replica) and returns
      a dataset of training batches. It starts at the right row itself.
    devices: the replicas.
    plan: batch sizes and steps.
    settings: output_dir and seeds.
    extra_hooks: further SessionRunHooks.

  Raises:
    UserError: the loss or the gradient became NaN or infinite; a checkpoint
      could not be restored or written.
    Interruption: SIGTERM or SIGINT came; the weights are saved.
  """
  checkpoints.repair(settings.output_dir)
  first_step = checkpoints.latest_step(settings.output_dir)
  if first_step >= plan.num_train_steps:
    _LOG.info("%s already holds step %d of %d: nothing to train.",
              settings.output_dir, first_step, plan.num_train_steps)
    return
  if first_step:
    _LOG.info("Going on from step %d in %s; --init_checkpoint is not used.",
              first_step, settings.output_dir)
  estimator = tf.estimator.Estimator(
      model_fn=_with_safe_saves(model_fn, settings),
      config=_make_run_config(devices, settings),
      params={"batch_size": plan.rows_per_replica})
  progress = hooks.ProgressHook(hooks.ProgressSettings(
      num_train_steps=plan.num_train_steps,
      global_batch_size=plan.global_batch_size,
      num_replicas=plan.num_replicas,
      device_kind=devices.kind))
  all_hooks = [progress, waiting.FirstStepHook(
      devices.num_replicas, devices.kind)] + list(extra_hooks)
  try:
    if devices.hosts is None:
      # First of all: the others can tell whether the training is to end.
      estimator.train(input_fn=input_fn, max_steps=plan.num_train_steps,
                      hooks=[hooks.InterruptionHook()] + all_hooks)
    else:
      _train_with_others(estimator, tf.estimator.TrainSpec(
          input_fn, plan.num_train_steps, all_hooks), settings)
  except tf.errors.OpError as error:
    # For example a summary; checkpoints are looked after by their Saver.
    if not files.is_want_of_room(error):
      raise
    raise UserError(files.describe_write_error(
        os.path.join(settings.output_dir, "model.ckpt"), error)) from error
  finally:
    interruption.wait_for_steps(False)
  interruption.raise_if_asked()


def _make_run_config(devices: Devices, settings: RunSettings) -> Any:
  """Where Estimator keeps its state; the chief of several hosts alone does."""
  summaries: Dict[str, Any] = {}
  if devices.hosts and not devices.hosts.is_chief:
    summaries["save_summary_steps"] = None
  return tf.estimator.RunConfig(
      model_dir=settings.output_dir,
      tf_random_seed=settings.seed,
      keep_checkpoint_max=settings.keep_checkpoint_max,
      # `_with_safe_saves` adds what saves.
      save_checkpoints_steps=None,
      save_checkpoints_secs=None,
      # ProgressHook logs instead.
      log_step_count_steps=None,
      session_config=devices.session_config,
      train_distribute=devices.strategy,
      **summaries)


def _train_with_others(estimator: Any, train_spec: Any,
                       settings: RunSettings) -> None:
  """Trains together with the other hosts, see `agreement.common_training`."""
  if tf.__version__.startswith("1."):
    # Called when Python ends, it fails and prints so. It has nothing to do: the
    # server ends with the process.
    tf.train.Server.__del__ = lambda self: None
  stop = hooks.StopTogetherHook(settings.is_asked_to_stop)
  # The one call of Estimator that trains on several hosts. It evaluates on a
  # host of its own only, and there is none.
  with tf.Graph().as_default():
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(train_spec.input_fn, train_spec.max_steps,
                               list(train_spec.hooks) + [stop]),
        tf.estimator.EvalSpec(train_spec.input_fn))
  if stop.has_stopped:
    _LOG.info("All hosts stop, as one of them was asked to; the chief saved "
              "the weights.")
    sys.exit(_STATUS_STOPPED)


def _with_safe_saves(model_fn: Callable[..., Any],
                     settings: RunSettings) -> Callable[..., Any]:
  """A model_fn whose run saves whole checkpoints with finite values only."""
  folder = settings.output_dir
  # In this order: what is not finite is not saved.
  chief_hooks = [hooks.FiniteHook(folder), saving.CheckpointHook(
      folder, settings.save_checkpoints_steps)]

  def safe_model_fn(features, labels, mode, params):
    spec = model_fn(features, labels, mode, params)
    # Once for all replicas. It is found there by the hook and by Estimator.
    if not tf.get_collection(tf.GraphKeys.SAVERS):
      tf.add_to_collection(tf.GraphKeys.SAVERS, saving.WholeSaver(
          folder, max_to_keep=settings.keep_checkpoint_max))
    return spec._replace(training_chief_hooks=chief_hooks)

  return safe_model_fn
