"""The checkpoint that a training starts from: is it one of this model?

Lives here: --init_checkpoint against the configuration and the task, and the
loading. Not here: the path and the files (`multigpu.checkpoint_files`) and a
run's own checkpoints (`multigpu.checkpoints`).
"""
import collections
import logging
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence

import tensorflow.compat.v1 as tf

import modeling
from multigpu import checkpoint_files
from multigpu import checkpoints
from multigpu import variable_shapes
from multigpu.errors import UserError

_LOG = logging.getLogger(__name__)

_LAYER_NUMBER = re.compile(r"layer_\d+/")
_LAYER = re.compile(r"bert/encoder/layer_(\d+)/")


def check_init_checkpoint(init_checkpoint: Optional[str],
                          config: modeling.BertConfig) -> Optional[str]:
  """Checks a checkpoint's files and the shapes of what is in them.

  Args:
    init_checkpoint: what the user gave, may be None.
    config: the model.

  Returns:
    The path to load from: the newest checkpoint where a folder was given.

  Raises:
    UserError: no checkpoint, an incomplete one, or one of another model.
  """
  path = checkpoint_files.resolve(init_checkpoint)
  if not path:
    return path
  settings = config.to_dict()
  expected = variable_shapes.variable_shapes(settings)
  stored = dict(tf.train.list_variables(path))
  if not any(name in stored for name in expected):
    raise UserError(
        "--init_checkpoint={}: none of the {} variables of BERT is in it, for "
        "example not {}; its first ones are {}: is this a BERT checkpoint of "
        "Google's scripts or these?".format(
            path, len(expected), next(iter(expected)),
            ", ".join(list(stored)[:3]) or "none"))
  check_shapes(path, dict(expected, **variable_shapes.head_shapes(settings)),
               stored)
  _check_layers(path, expected, stored, config.num_hidden_layers)
  return path


def _check_layers(path: str, expected: variable_shapes.Shapes,
                  stored: Mapping[str, Any], num_layers: int) -> None:
  """Refuses an encoder that would stay random in part."""
  layers = {int(match.group(1)) for match in map(_LAYER.match, stored) if match}
  missing = [name for name in expected if name not in stored
             and not name.startswith(variable_shapes.POOLER)]
  if missing:
    raise UserError(
        "--init_checkpoint={} lacks {} of the {} variables of the model, for "
        "example {}. It has {} encoder layers, --bert_config_file says "
        "num_hidden_layers {}: use the bert_config.json that came with the "
        "checkpoint.".format(path, len(missing), len(expected), missing[0],
                             len(layers), num_layers))
  if len(layers) > num_layers:
    _LOG.warning("--init_checkpoint=%s has %d encoder layers, but only the "
                 "first %d are used: num_hidden_layers in --bert_config_file.",
                 path, len(layers), num_layers)


def warn_of_random_weights(output_dir: str) -> None:
  """Warns where fine-tuning has no model to start from."""
  if not checkpoints.newest(output_dir):
    _LOG.warning("RANDOM WEIGHTS: no --init_checkpoint, and %s holds no "
                 "checkpoint: this trains BERT from nothing.", output_dir)


def initialize_from(init_checkpoint: str, tvars: List[Any]) -> None:
  """Makes the initializers of `tvars` read a checkpoint, where it has them.

  The log says how many variables were found and names the others.

  Raises:
    UserError: no name or not all shapes fit.
  """
  assignment_map, found = modeling.get_assignment_map_from_checkpoint(
      tvars, init_checkpoint)
  check_shapes(init_checkpoint,
               {var.name[:-2]: var.shape.as_list() for var in tvars},
               dict(tf.train.list_variables(init_checkpoint)))
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


def check_shapes(init_checkpoint: str, wanted: Mapping[str, Sequence[int]],
                 stored: Mapping[str, Sequence[int]]) -> None:
  """Compares the variables of a checkpoint with the model's, where it has them.

  Args:
    init_checkpoint: its path.
    wanted: {name: shape} of the model.
    stored: {name: shape} of the checkpoint.

  Raises:
    UserError: some differ; all are in the message, equal layers in one line.
  """
  lines: Dict[str, int] = collections.OrderedDict()
  for name, shape in wanted.items():
    if name in stored and list(stored[name]) != list(shape):
      line = "{}: {} in the checkpoint, {} in the model".format(
          _LAYER_NUMBER.sub("layer_N/", name), list(stored[name]), list(shape))
      lines[line] = lines.get(line, 0) + 1
  if lines:
    raise UserError(
        "--init_checkpoint={} does not fit --bert_config_file; {} variables "
        "have other shapes:\n  {}\nUse the bert_config.json that came with the "
        "checkpoint.".format(
            init_checkpoint, sum(lines.values()), "\n  ".join(
                line + (" ({} layers)".format(count) if count > 1 else "")
                for line, count in lines.items())))


def check_labels(init_checkpoint: Optional[str], config: modeling.BertConfig,
                 num_labels: int) -> None:
  """Raises UserError if a checkpoint's classifier has other labels."""
  if not init_checkpoint:
    return
  stored = dict(tf.train.list_variables(init_checkpoint))
  wanted = variable_shapes.classifier_shapes(config.to_dict(), num_labels)
  if any(list(stored.get(name, shape)) != list(shape)
         for name, shape in wanted.items()):
    raise UserError(
        "--init_checkpoint={} is a classifier with {} labels, this task has "
        "{}: start from the pre-trained checkpoint, or give the data it was "
        "trained on.".format(init_checkpoint, stored["output_bias"][0],
                             num_labels))
