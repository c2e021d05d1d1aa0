"""A word when the first training step does not end.

GPUs that cannot reach each other do not fail: the first all-reduce waits for
ever, inside the driver. Only another thread can still say something.
"""
import logging
import threading
from typing import Optional

import tensorflow.compat.v1 as tf

_LOG = logging.getLogger(__name__)

_COMPILING = (
    "TensorFlow compiles kernels for GPUs that are newer than itself at the "
    "first start, for many minutes and only once.")
_HANGING = (
    "If all GPUs show 100 % in nvidia-smi and nothing moves, they wait for "
    "each other: stop the run and try --all_reduce=hierarchical_copy or "
    "--all_reduce=reduce_to_one, or the environment variable "
    "NCCL_P2P_DISABLE=1. verify_gpus.py tells which of them works.")


class FirstStepHook(tf.train.SessionRunHook):
  """Warns when the first step takes long, and again after the same time."""

  def __init__(self, num_replicas: int, kind: str, every_secs: float = 300.0):
    """Arguments: number of replicas, "GPU" or "CPU", seconds to wait."""
    advice = []
    if kind == "GPU":
      advice = [_COMPILING] + ([_HANGING] if num_replicas > 1 else [])
    self._advice = " ".join([""] + advice)
    self._every_secs = every_secs
    self._is_over = threading.Event()
    self._thread: Optional[threading.Thread] = None

  def before_run(self, run_context):
    """Starts to wait, once."""
    if self._thread is None:
      self._thread = threading.Thread(target=self._wait, daemon=True)
      self._thread.start()

  def after_run(self, run_context, run_values) -> None:
    """There was a first step."""
    self._is_over.set()

  def end(self, session) -> None:
    """There will be none."""
    self._is_over.set()

  def _wait(self) -> None:
    seconds = 0.0
    while not self._is_over.wait(self._every_secs):
      seconds += self._every_secs
      _LOG.warning("the first step has taken %g minutes so far.%s",
                   seconds / 60, self._advice)
