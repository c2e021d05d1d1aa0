"""What a training run prints while it goes on, and what stops it."""
import logging
import time
from typing import Callable, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from multigpu import interruption
from multigpu import saving
from multigpu.errors import UserError
from optimization import GRADIENT_NORM, LOSS_SCALE

_LOG = logging.getLogger(__name__)

# Collections of the graph of several hosts: a placeholder in which a host says
# 1.0 when it is to stop, and the sum over all of them, in each step.
STOP_ASKED = "stop_asked"
STOP_VOTES = "stop_votes"


class ProgressSettings(NamedTuple):
  """What progress is measured against."""
  num_train_steps: int
  global_batch_size: int
  num_replicas: int
  device_kind: str = "GPU"
  every_secs: float = 10.0


class ProgressHook(tf.train.SessionRunHook):
  """Logs step, global mean loss, examples per second and the time left.

  Speed is measured over the steps since the last line, so the slow first step
  (building, memory) does not count. A line comes for the first and the last
  step and every `every_secs` seconds between.
  """

  def __init__(self, settings: ProgressSettings, clock=time.time):
    self._settings = settings
    self._clock = clock
    self._last_time: Optional[float] = None
    self._last_step = 0

  def begin(self) -> None:
    """Finds the loss that Estimator reports: the mean over all replicas."""
    self._loss = tf.get_collection(tf.GraphKeys.LOSSES)[-1]
    self._step = tf.train.get_global_step()
    self._loss_scale = tf.get_collection(LOSS_SCALE)[:1]
    self._last_scale = 0.0

  def before_run(self, run_context):
    """Asks for the loss."""
    return tf.train.SessionRunArgs([self._loss] + self._loss_scale)

  def after_run(self, run_context, run_values) -> None:
    """Logs a line when it is time."""
    loss = run_values.results[0]
    for scale in run_values.results[1:]:
      if scale < self._last_scale:
        _LOG.info("the gradient was not finite in half precision: one update "
                  "was skipped, loss scale %g -> %g", self._last_scale, scale)
      self._last_scale = scale
    # Fetched along with the loss it may be read before or after the update.
    step = int(run_context.session.run(self._step))
    now = self._clock()
    is_last = step >= self._settings.num_train_steps
    if self._last_time is None:
      _LOG.info("step %d/%d  loss %.4f", step, self._settings.num_train_steps,
                loss)
    elif is_last or now - self._last_time >= self._settings.every_secs:
      _LOG.info(self.describe(step, float(loss), now))
    else:
      return
    self._last_time, self._last_step = now, step

  def describe(self, step: int, loss: float, now: float) -> str:
    """The line for one step."""
    settings = self._settings
    assert self._last_time is not None
    seconds = max(now - self._last_time, 1e-9)
    speed = (step - self._last_step) * settings.global_batch_size / seconds
    per_replica = ""
    if settings.num_replicas > 1:
      per_replica = " ({:.1f} per {})".format(
          speed / settings.num_replicas, settings.device_kind)
    rows_left = (settings.num_train_steps - step) * settings.global_batch_size
    left = int(rows_left / speed) if speed else 0
    return "step {}/{}  loss {:.4f}  {:.1f} examples/s{}  ETA {}".format(
        step, settings.num_train_steps, loss, speed, per_replica,
        "%d:%02d:%02d" % (left // 3600, left // 60 % 60, left % 60))


class FiniteHook(tf.train.SessionRunHook):
  """Stops a run whose loss or gradient is NaN or infinite.

  The step's update is made by then, so this hook must come before the one that
  saves. In half precision an infinite gradient skips its update and is no
  error, unless no smaller loss scale is left to try.
  """

  def __init__(self, output_dir: str):
    self._output_dir = output_dir

  def begin(self) -> None:
    """Finds the loss and the norm of the gradient; no new ops."""
    self._step = tf.train.get_global_step()
    # Equal on all replicas: the first one's will do.
    self._fetches = {
        "loss": tf.get_collection(tf.GraphKeys.LOSSES)[-1],
        "norm": tf.get_collection(GRADIENT_NORM)[:1],
        "scale": tf.get_collection(LOSS_SCALE)[:1]}

  def before_run(self, run_context):
    """Asks for them."""
    return tf.train.SessionRunArgs(self._fetches)

  def after_run(self, run_context, run_values) -> None:
    """Raises UserError unless they are finite."""
    loss, norm, scale = (run_values.results[name]
                         for name in ("loss", "norm", "scale"))
    skips_updates = bool(scale) and scale[0] > 1.0
    if np.isfinite(loss) and (skips_updates or np.isfinite(norm).all()):
      return
    step = int(run_context.session.run(self._step))
    raise UserError(
        "step {}: the loss is {:g} and the norm of the gradient {}; training "
        "has diverged and stops. {}".format(
            step, loss, " ".join("%g" % value for value in norm) or "unknown",
            saving.describe_remedy(self._output_dir)))


class InterruptionHook(tf.train.SessionRunHook):
  """Ends the training after the step in which SIGTERM or SIGINT came.

  Then the session ends as after the last step: the weights are saved.
  """

  def before_run(self, run_context) -> None:
    """From the first step on signals wait for the end of a step."""
    interruption.wait_for_steps(True)

  def after_run(self, run_context, run_values) -> None:
    """Asks for the end."""
    if interruption.is_asked():
      run_context.request_stop()


class StopTogetherHook(tf.train.SessionRunHook):
  """Ends the training on all hosts after one step when one of them asks for it.

  A host that stopped alone would leave the others waiting inside their next
  step, where the chief cannot save.
  """

  def __init__(self, is_asked: Callable[[], bool]):
    """`is_asked` tells whether this host is to stop."""
    self._is_asked = is_asked
    # Whether the training was ended.
    self.has_stopped = False

  def begin(self) -> None:
    """Finds what `model_fn` has made for it."""
    self._asked = tf.get_collection(STOP_ASKED)[0]
    self._votes = tf.get_collection(STOP_VOTES)[0]

  def before_run(self, run_context):
    """Votes; from the first step on signals wait for the end of a step."""
    interruption.wait_for_steps(True)
    return tf.train.SessionRunArgs(
        self._votes, feed_dict={self._asked: float(self._is_asked())})

  def after_run(self, run_context, run_values) -> None:
    """Asks for the end, in the same step on all hosts."""
    if run_values.results > 0:
      self.has_stopped = True
      run_context.request_stop()
