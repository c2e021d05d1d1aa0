"""Checkpoints: finding them, and starting from one of another task."""
import logging
from typing import Any, List, Optional

import tensorflow.compat.v1 as tf

import modeling
from multigpu.errors import UserError

_LOG = logging.getLogger(__name__)


def latest_step(output_dir: str) -> int:
  """The global step of the newest checkpoint in a folder, 0 without one."""
  path = tf.train.latest_checkpoint(output_dir)
  if path is None:
    return 0
  return int(tf.train.load_variable(path, "global_step"))


def check_loss_scale(output_dir: str) -> None:
  """Raises UserError if the newest checkpoint in a folder has no loss scale."""
  path = tf.train.latest_checkpoint(output_dir)
  if "loss_scale" not in dict(tf.train.list_variables(path)):
    raise UserError(
        "--precision=fp16, but {} was trained without it and has no loss "
        "scale: go on with the precision it was trained with, or start in "
        "another --output_dir with --init_checkpoint={}.".format(path, path))


def check_init_checkpoint(init_checkpoint: Optional[str]) -> None:
  """Raises UserError if there is no such checkpoint."""
  if not init_checkpoint:
    return
  # With an ending TensorFlow finds a file, but loads nothing from it.
  for suffix in (".index", ".meta", ".data-00000-of-00001"):
    if init_checkpoint.endswith(suffix):
      raise UserError("--init_checkpoint={} is one file of a checkpoint: leave "
                      "out the ending and pass {}.".format(
                          init_checkpoint, init_checkpoint[:-len(suffix)]))
  if not tf.train.checkpoint_exists(init_checkpoint):
    raise UserError(
        "--init_checkpoint={}: there is no checkpoint of this name: pass the "
        "path of its .index file without the ending \".index\".".format(
            init_checkpoint))


def for_inference(output_dir: str,
                  init_checkpoint: Optional[str]) -> Optional[str]:
  """The newest checkpoint in a folder; None: weights as initialised."""
  path = tf.train.latest_checkpoint(output_dir)
  if path:
    _LOG.info("Weights: %s", path)
  elif init_checkpoint:
    _LOG.info("Weights: %s (%s holds no checkpoint).", init_checkpoint,
              output_dir)
  else:
    _LOG.warning(
        "RANDOM WEIGHTS: %s holds no checkpoint and --init_checkpoint is not "
        "set. Train first, or pass a fine-tuned --init_checkpoint.", output_dir)
  return path


def initialize_from(init_checkpoint: str, tvars: List[Any]) -> None:
  """Makes the initializers of `tvars` read a checkpoint, where it has them.

  The log says how many variables were found and names the others.

  Raises:
    UserError: no name or not all shapes fit.
  """
  assignment_map, found = modeling.get_assignment_map_from_checkpoint(
      tvars, init_checkpoint)
  _check_shapes(init_checkpoint, [var for var in tvars if var.name in found])
  missing = [var.name[:-2] for var in tvars if var.name not in found]
  if not assignment_map:
    raise UserError(
        "--init_checkpoint={}: none of the model's {} variables is in it, for "
        "example not {}: is this a BERT checkpoint?".format(
            init_checkpoint, len(tvars), missing[0]))
  context = tf.distribute.get_replica_context()
  if tf.get_static_value(context.replica_id_in_sync_group) == 0:
    _LOG.info("init_checkpoint %s: loaded %d of %d variables%s",
              init_checkpoint, len(assignment_map), len(tvars),
              "; not in it: " + ", ".join(missing) if missing else "")
  tf.train.init_from_checkpoint(init_checkpoint, assignment_map)


def _check_shapes(init_checkpoint: str, tvars: List[Any]) -> None:
  """Raises UserError with all variables whose shapes differ."""
  shapes = dict(tf.train.list_variables(init_checkpoint))
  different = [
      "{}: {} in the checkpoint, {} in the model".format(
          name, list(shapes[name]), var.shape.as_list())
      for var in tvars for name in [var.name[:-2]]
      if list(shapes[name]) != var.shape.as_list()]
  if different:
    raise UserError(
        "--init_checkpoint={} does not fit --bert_config_file; {} variables "
        "have other shapes:\n  {}\nUse the bert_config.json that came with the "
        "checkpoint.".format(init_checkpoint, len(different),
                             "\n  ".join(different)))
