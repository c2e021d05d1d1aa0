"""Saves checkpoints that a run can be resumed from, or none at all.

Lives here: the Saver of training runs, and when it saves. Not here: which
checkpoint in a folder is the newest (`multigpu.checkpoints`) and what stops a
run before a save (`multigpu.hooks`).
"""
import logging
import os
import re
from typing import Any, List, Optional

import tensorflow.compat.v1 as tf

from multigpu import checkpoints
from multigpu import files
from multigpu.errors import UserError

_LOG = logging.getLogger(__name__)

# Copies of a variable on the other replicas; they are not saved.
_OTHER_REPLICA = re.compile(r"/replica_\d+(:|$)")


class CheckpointHook(tf.train.SessionRunHook):
  """Saves at the start, every so many steps and at the end.

  At the start it also writes the graph, for TensorBoard and as graph.pbtxt. In
  the place of tf.train.CheckpointSaverHook, whose graph.pbtxt costs a part of
  the start that grows with the replicas, and may be left half-written.
  """

  def __init__(self, output_dir: str, save_steps: int):
    """Args:

      output_dir: folder of the run.
      save_steps: steps from one checkpoint to the next.
    """
    self._output_dir = output_dir
    self._timer = tf.train.SecondOrStepTimer(every_steps=save_steps)

  def begin(self) -> None:
    """Finds the Saver that the model_fn has made."""
    self._saver, = tf.get_collection(tf.GraphKeys.SAVERS)
    self._step = tf.train.get_global_step()

  def after_create_session(self, session: Any, coord: Any) -> None:
    """Writes the graph and the first checkpoint."""
    del coord
    graph = tf.get_default_graph()
    files.write_text_atomically(
        os.path.join(self._output_dir, "graph.pbtxt"),
        # Protocol buffers print themselves in C; text_format is Python.
        str(graph.as_graph_def(add_shapes=True)))
    tf.summary.FileWriterCache.get(self._output_dir).add_graph(graph)
    self._save(session, int(session.run(self._step)))

  def after_run(self, run_context: Any, run_values: Any) -> None:
    """Saves when it is time."""
    del run_values
    # Fetched along with the step it may be read before or after the update.
    step = int(run_context.session.run(self._step))
    if self._timer.should_trigger_for_step(step):
      self._save(run_context.session, step)

  def end(self, session: Any) -> None:
    """Saves the last step."""
    step = int(session.run(self._step))
    if self._timer.last_triggered_step() != step:
      self._save(session, step)

  def _save(self, session: Any, step: int) -> None:
    self._saver.save(session, os.path.join(self._output_dir, "model.ckpt"),
                     global_step=step)
    self._timer.update_last_triggered_step(step)


class WholeSaver(tf.train.Saver):
  """A Saver that writes only whole checkpoints with finite values.

  Built last, when all variables are there (`defer_build`).
  """

  def __init__(self, output_dir: str, **settings: Any):
    """Args:

      output_dir: folder of the run.
      **settings: as for tf.train.Saver.
    """
    super().__init__(sharded=True, defer_build=True, save_relative_paths=True,
                     **settings)
    self._output_dir = output_dir
    self._restored: Optional[str] = None
    self._checked: List[str] = []
    self._are_finite: Any = None

  def build(self) -> None:
    """Adds the ops; nothing of them is computed in a training step."""
    super().build()
    variables = [var for var in tf.global_variables()
                 if var.dtype.base_dtype.is_floating
                 and not _OTHER_REPLICA.search(var.name)]
    self._checked = [var.name.split(":")[0] for var in variables]
    checks = []
    for var in variables:
      with tf.device(var.device):
        checks.append(tf.reduce_all(tf.math.is_finite(var)))
    self._are_finite = tf.stack(checks) if checks else tf.constant([True])

  def restore(self, sess: Any, save_path: str) -> None:
    """Restores the variables.

    Raises:
      UserError: the checkpoint lacks variables, or is damaged.
    """
    with checkpoints.explained_restore(save_path):
      super().restore(sess, save_path)
    self._restored = save_path

  def save(self, sess: Any, save_path: str, global_step: Any = None,
           **options: Any) -> Any:
    """Writes a checkpoint.

    Raises:
      UserError: a value is not finite, or the files cannot be written. Older
        checkpoints are as they were.
    """
    path = "{}-{}".format(save_path, global_step)
    if path == self._restored:
      # Estimator saves at the start of a run what it has just restored. A kill
      # while the files are replaced would cost the newest checkpoint.
      self._write_missing_meta(sess, path)
      return path
    self._check_finite(sess, path)
    try:
      return super().save(sess, save_path, global_step=global_step, **options)
    except (tf.errors.AbortedError, tf.errors.UnavailableError):
      raise  # Estimator tries again
    except (tf.errors.OpError, ValueError) as error:
      _remove_parts(path)
      raise UserError("{} {}".format(
          files.describe_write_error(path, error), describe_last_good(
              self._output_dir))) from error

  def _check_finite(self, sess: Any, path: str) -> None:
    bad = [name for name, is_finite in zip(
        self._checked, sess.run(self._are_finite)) if not is_finite]
    if bad:
      raise UserError(
          "{} was not saved: {} of {} variables have values that are NaN or "
          "infinite, the first is {}. {}".format(
              path, len(bad), len(self._checked), bad[0],
              "They are those of --init_checkpoint: take another one."
              if path.endswith("-0") else describe_remedy(self._output_dir)))

  def _write_missing_meta(self, sess: Any, path: str) -> None:
    # The only file that is written after `checkpoint`.
    if not tf.io.gfile.exists(path + ".meta"):
      with sess.graph.as_default():
        self.export_meta_graph(path + ".meta")


def describe_remedy(output_dir: str) -> str:
  """What to try when the weights of a run are not finite any more."""
  return ("Try a lower --learning_rate, --precision=fp32 if it was another, "
          "and check the data. " + describe_last_good(output_dir))


def describe_last_good(output_dir: str) -> str:
  """Names the checkpoint that the same command would go on from."""
  path = checkpoints.newest(output_dir)
  if path is None:
    return "There is no checkpoint yet."
  return "The last good checkpoint is {}.".format(path)


def _remove_parts(path: str) -> None:
  """Removes what was written of a checkpoint that did not become whole."""
  folder, prefix = os.path.split(path)
  if checkpoints.is_whole(path):
    return  # only `checkpoint` could not be written
  try:
    for name in tf.io.gfile.listdir(folder):
      if name.startswith((prefix + "_temp", prefix + ".")):
        part = os.path.join(folder, name)
        remove = tf.io.gfile.rmtree if tf.io.gfile.isdir(
            part) else tf.io.gfile.remove
        remove(part.rstrip("/"))
  except tf.errors.OpError as error:
    _LOG.warning("parts of %s are left: %s", path, error)
