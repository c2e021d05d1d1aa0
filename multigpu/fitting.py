"""Whether the checkpoint in a folder is one of the model that is about to run.

TensorFlow would find out when it restores it, after all data has been read and
made into features, and names one variable.
"""
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import tensorflow.compat.v1 as tf

from multigpu import examples
from multigpu.errors import UserError

Shapes = Dict[str, Tuple[int, ...]]

# What training stores beside the weights and the optimizer's slots.
_BOOKKEEPING = {"global_step", "loss_scale", "loss_scale_good_steps"}


class Differences(NamedTuple):
  """What a checkpoint and a model do not have in common."""
  missing: List[str]  # in the checkpoint
  extra: List[str]  # in the checkpoint
  shapes: List[str]

  def describe(self) -> str:
    """All of them, one a line."""
    lines = []
    for title, names in (("not in the checkpoint", self.missing),
                         ("only in the checkpoint", self.extra),
                         ("of other shapes", self.shapes)):
      if names:
        lines.append("  {} ({}):".format(title, len(names)))
        lines += ["    " + name for name in names]
    return "\n".join(lines)


def model_shapes(model_fn: Callable[..., Any],
                 table: examples.RecordTable) -> Shapes:
  """Shapes of a model's variables by name; builds it once, without running it.

  Args:
    model_fn: as for Estimator.
    table: what its features are.
  """
  with tf.Graph().as_default():
    features = {
        name: tf.zeros([1] + list(shape),
                       tf.int32 if dtype == "int64" else dtype)
        for name, (shape, dtype) in table.items()}
    model_fn(features, None, tf.estimator.ModeKeys.PREDICT, {})
    return {var.name.split(":")[0]: tuple(var.shape.as_list())
            for var in tf.global_variables()}


def compare(found: Shapes, wanted: Shapes) -> Differences:
  """Compares a checkpoint with a model; slots of optimizers do not count.

  A slot is called <variable>/<slot>, and no variable is so called.
  """
  def text(name, shape):
    return "{} {}".format(name, list(shape))

  extra = [name for name in sorted(set(found) - set(wanted) - _BOOKKEEPING)
           if name.rpartition("/")[0] not in found]
  return Differences(
      missing=[text(name, wanted[name])
               for name in sorted(set(wanted) - set(found))],
      extra=[text(name, found[name]) for name in extra],
      shapes=["{}: {} in the checkpoint, {} here".format(
          name, list(found[name]), list(shape))
              for name, shape in sorted(wanted.items())
              if name in found and found[name] != shape])


def check(checkpoint: str, wanted: Shapes, is_training: bool) -> None:
  """Raises UserError unless a checkpoint of the output folder fits.

  Args:
    checkpoint: its path.
    wanted: `model_shapes` of the model.
    is_training: the optimizer's slots and the step are wanted too.
  """
  found = {name: tuple(shape)
           for name, shape in tf.train.list_variables(checkpoint)}
  differences = compare(found, wanted)
  remedy = ("Pass another --output_dir, with --init_checkpoint={} if the "
            "training is to start from these weights.".format(checkpoint))
  if any(differences):
    raise UserError(
        "--output_dir already holds {}, a checkpoint of another model, task "
        "or --bert_config_file. Variables\n{}\n{}".format(
            checkpoint, differences.describe(), remedy))
  if is_training and not ("global_step" in found
                          and any(name.endswith("/adam_m") for name in found)):
    raise UserError(
        "--output_dir already holds {}, which has the weights of this model "
        "but not the state of a training (global_step, adam_m, adam_v): it "
        "cannot be gone on from. {}".format(checkpoint, remedy))
