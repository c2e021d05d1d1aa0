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


def check_init_checkpoint(init_checkpoint: Optional[str]) -> None:
  """Raises UserError if there is no such checkpoint."""
  if not init_checkpoint:
    return
  if tf.train.checkpoint_exists(init_checkpoint):
    return
  message = "--init_checkpoint={}: there is no checkpoint of this name".format(
      init_checkpoint)
  for suffix in (".index", ".meta", ".data-00000-of-00001"):
    if init_checkpoint.endswith(suffix):
      raise UserError("{}: leave out the ending and pass {}.".format(
          message, init_checkpoint[:-len(suffix)]))
  raise UserError(message + ": pass the path of its .index file without the "
                  "ending \".index\".")


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


def read_bert_config(path: str) -> modeling.BertConfig:
  """Reads bert_config.json.

  Raises:
    UserError: no such file, or it is no configuration.
  """
  try:
    config = modeling.BertConfig.from_json_file(path)
  except (tf.errors.OpError, ValueError, AttributeError) as error:
    raise UserError("--bert_config_file={}: not a readable bert_config.json "
                    "({}).".format(path, str(error).split("\n")[0])) from error
  if not config.vocab_size:
    raise UserError("--bert_config_file={}: \"vocab_size\" is missing.".format(
        path))
  return config


def check_vocabulary(path: str, num_entries: int,
                     config: modeling.BertConfig) -> None:
  """Raises UserError if the vocabulary has ids that the model lacks."""
  if num_entries > config.vocab_size:
    raise UserError(
        "--vocab_file={} has {} entries, but bert_config.json says vocab_size "
        "{}: use the vocabulary that came with the checkpoint.".format(
            path, num_entries, config.vocab_size))


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
