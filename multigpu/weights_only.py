"""Checkpoints without what only the optimizer needs: a third of the size."""
import os
from typing import List

import tensorflow.compat.v1 as tf

from multigpu import checkpoint_files
from multigpu.errors import UserError

# What the optimizer keeps with the weights, see `optimization`.
SLOTS = ("adam_m", "adam_v")
LOSS_SCALE = ("loss_scale", "loss_scale_good_steps")
_SUFFIXES = (".data-00000-of-00001", ".index")


def is_optimizer_state(name: str) -> bool:
  """Whether a variable serves training alone.

  global_step does not: Estimator and this project ask for it when they restore
  a checkpoint to predict.
  """
  return name.rsplit("/", 1)[-1] in SLOTS or name in LOSS_SCALE


def copy_weights(source: str, target: str) -> List[str]:
  """Writes a checkpoint with the weights and the step of another one.

  The copy gets its name when it is whole and has been compared with the source,
  number by number.

  Args:
    source: checkpoint, without ".index".
    target: its copy, the same way; its folder must exist.

  Returns:
    The names of the variables that were left out, sorted.

  Raises:
    UserError: there is nothing to keep, the source cannot be read or the copy
      not be written.
  """
  try:
    every = tf.train.load_checkpoint(source).get_variable_to_shape_map()
  except (tf.errors.OpError, ValueError) as error:
    raise UserError("{} cannot be read ({}): was it copied completely?".format(
        source, error)) from error
  names = sorted(name for name in every if not is_optimizer_state(name))
  if not set(names) - {"global_step"}:
    raise UserError("{} holds no weights.".format(source))
  # Not beside the target: a name like a checkpoint's might be taken for one.
  folder = "{}.tmp-{}".format(target, os.getpid())
  temporary = os.path.join(folder, "weights")
  tf.io.gfile.makedirs(folder)
  try:
    _copy(source, temporary, names)
    _compare(source, temporary, names)
    move(temporary, target)
  except tf.errors.OpError as error:
    raise UserError(
        "cannot copy {} to {} ({}): are all files of the first there, and room "
        "for the second?".format(source, target, error.message)) from error
  finally:
    tf.io.gfile.rmtree(folder)
  return sorted(set(every) - set(names))


def move(source: str, target: str) -> None:
  """Renames a checkpoint. Its index comes last: with it, it is there."""
  for suffix in _SUFFIXES:
    tf.io.gfile.rename(source + suffix, target + suffix, overwrite=True)


def size_of(path: str) -> int:
  """Bytes of all files of a checkpoint but its graph."""
  return sum(tf.io.gfile.stat(name).length
             for pattern in (".index", ".data-*")
             for name in tf.io.gfile.glob(path + pattern))


def _copy(source: str, target: str, names: List[str]) -> None:
  dtypes = tf.train.load_checkpoint(source).get_variable_to_dtype_map()
  whole = [""] * len(names)
  # Nothing here is worth a GPU, and someone else may be using it.
  with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(
      device_count={"GPU": 0})) as session:
    values = tf.raw_ops.RestoreV2(
        prefix=source, tensor_names=names, shape_and_slices=whole,
        dtypes=[dtypes[name] for name in names])
    session.run(tf.raw_ops.SaveV2(
        prefix=target, tensor_names=names, shape_and_slices=whole,
        tensors=values))


def _compare(source: str, target: str, names: List[str]) -> None:
  readers = [tf.train.load_checkpoint(path) for path in (source, target)]
  found = readers[1].get_variable_to_shape_map()
  if sorted(found) != names:
    raise UserError("{}: the copy does not have the variables that were "
                    "written; is the disk sound?".format(target))
  for name in names:
    # As bytes: a number that is not one equals itself, too.
    first, second = (reader.get_tensor(name) for reader in readers)
    if (first.dtype, first.shape, first.tobytes()) != (
        second.dtype, second.shape, second.tobytes()):
      raise UserError("{}: {} is not what {} holds; is the disk sound?".format(
          target, name, source))


def find_source(path: str) -> str:
  """The checkpoint that a path of the user means.

  Args:
    path: a checkpoint without ".index", or a folder: its newest checkpoint.

  Raises:
    UserError: there is none.
  """
  return checkpoint_files.resolve(path, where=path) or path


def check_target(source: str, target: str) -> None:
  """Raises UserError where a copy must not be written."""
  if tf.io.gfile.isdir(target):
    raise UserError("{} is a folder, wanted the name of the new checkpoint: "
                    "pass {}.".format(target, os.path.join(
                        target, os.path.basename(source))))
  for suffix in (".index", ".meta", ".data-00000-of-00001"):
    if target.endswith(suffix):
      raise UserError("{} is the name of one file of a checkpoint: leave out "
                      "the ending and pass {}.".format(
                          target, target[:-len(suffix)]))
  if not tf.io.gfile.isdir(os.path.dirname(target) or "."):
    return  # It will be made.
  taken = [name for pattern in (".index", ".data-*")
           for name in tf.io.gfile.glob(target + pattern)]
  if taken:
    raise UserError("{} exists already{}: pass another name, or remove it "
                    "first.".format(taken[0], " (it is the checkpoint to be "
                                    "read)" if _same(source, target) else ""))


def _same(source: str, target: str) -> bool:
  return os.path.realpath(source) == os.path.realpath(target)
