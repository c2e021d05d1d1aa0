"""The path of a checkpoint: which files it leads to, and whether all are there.

A checkpoint is named by the common beginning of its files, which is itself no
file: `bert_model.ckpt` for `bert_model.ckpt.index` and
`bert_model.ckpt.data-00000-of-00001`. Most wrong paths come from that.
"""
import logging
import os
import re
from typing import Any, List, Optional

import tensorflow.compat.v1 as tf

from multigpu import file_kinds
from multigpu.errors import UserError

_LOG = logging.getLogger(__name__)

_PART = re.compile(r"(.*)\.(index|meta|data-\d{5}-of-\d{5})$")
_SHARD = re.compile(r"\.data-(\d{5})-of-(\d{5})$")
# TensorFlow 2 turns its own errors into Python's here.
_READ_ERRORS = (tf.errors.OpError, ValueError, RuntimeError, LookupError,
                TypeError, OSError)
# What a folder holds that Hugging Face's library wrote.
_OTHER_WEIGHTS = re.compile(
    r"(pytorch_model.*\.bin|.*\.safetensors|tf_model\.h5|flax_model\..*)$")
_IMPORT = ("scripts/import_checkpoint.py makes a checkpoint of a Hugging Face "
           "model in safetensors format.")


def resolve(init_checkpoint: Optional[str],
            where: str = "") -> Optional[str]:
  """Checks a checkpoint's path; a folder stands for its newest checkpoint.

  Args:
    init_checkpoint: what the user gave; None and "" are returned as they are.
    where: what the messages call it, by default --init_checkpoint=PATH.

  Returns:
    The path to load from.

  Raises:
    UserError: no checkpoint, or one that is not complete.
  """
  if not init_checkpoint:
    return init_checkpoint
  where = where or "--init_checkpoint={}".format(init_checkpoint)
  part = _PART.match(init_checkpoint)
  if part:
    # With an ending TensorFlow finds a file, but loads nothing from it.
    raise UserError("{} is one file of a checkpoint: leave out the ending and "
                    "pass {}.".format(where, part.group(1)))
  path = init_checkpoint
  if tf.io.gfile.isdir(path):
    path = _find_in_folder(path, where)
    _LOG.info("%s: using %s", where, path)
  if tf.io.gfile.exists(path + ".index"):
    check_whole(path, where)
  elif not _is_old_format(path):
    raise UserError(where + _explain_missing(path))
  return path


def check_whole(path: str, where: str) -> None:
  """Checks that a checkpoint can be opened and has all of its bytes.

  Args:
    path: of the checkpoint, whose .index exists.
    where: where it was given, for the message.

  Raises:
    UserError: something is missing.
  """
  damage = find_damage(path)
  if damage:
    raise UserError("{}: {}".format(where, damage))


def find_damage(path: str) -> Optional[str]:
  """Says what is missing of a checkpoint, and what to do; None: it is whole.

  The index tells shapes and types: the data files must hold as many bytes.
  Their checksums are read together with the weights, by TensorFlow.
  """
  try:
    reader = tf.train.load_checkpoint(path)
    shapes = reader.get_variable_to_shape_map()
    dtypes = reader.get_variable_to_dtype_map()
  except _READ_ERRORS as error:
    return ("{}.index cannot be read ({}): was it copied or downloaded "
            "completely?".format(path, str(error).split("\n")[0].rstrip(".")))
  shards = _list_shards(path)
  if not shards:
    return ("{}.data-00000-of-00001 is missing: copy all files of the "
            "checkpoint.".format(path))
  missing = _find_missing_shard(shards)
  if missing:
    return missing
  found = sum(tf.io.gfile.stat(shard).length for shard in shards)
  wanted = sum(_count_bytes(dtypes[name], shape)
               for name, shape in shapes.items())
  if found < wanted:
    return ("{} has {} of {} bytes: the file is cut off. Copy or download it "
            "again.".format(", ".join(shards), found, wanted))
  return None


def _count_bytes(dtype: Any, shape: List[int]) -> int:
  # Strings have any length, and variant types none.
  size = dtype.size if dtype.is_floating or dtype.is_integer else 0
  for dimension in shape:
    size *= dimension
  return size


def _list_shards(path: str) -> List[str]:
  folder, name = os.path.split(path)
  return [os.path.join(folder, other)
          for other in file_kinds.list_folder(folder or ".")
          if other.startswith(name + ".data-") and _SHARD.search(other)]


def _find_missing_shard(shards: List[str]) -> Optional[str]:
  numbers = [match.groups() for match in map(_SHARD.search, shards) if match]
  total = int(numbers[0][1])
  missing = [number for number in range(total)
             if "%05d" % number not in {first for first, _ in numbers}]
  if not missing:
    return None
  return ("part {} of {} is missing (.data-{:05d}-of-{:05d}): copy all files "
          "of the checkpoint.".format(missing[0] + 1, total, missing[0], total))


def _checkpoints_in(folder: str) -> List[str]:
  return [os.path.join(folder, name[:-len(".index")])
          for name in file_kinds.list_folder(folder) if name.endswith(".index")]


def _find_in_folder(folder: str, where: str) -> str:
  """The newest checkpoint of a folder, or its only one."""
  newest = tf.train.latest_checkpoint(folder)
  if newest:
    return newest
  found = _checkpoints_in(folder)
  if len(found) == 1:
    return found[0]
  if found:
    raise UserError(
        "{} is a folder with {} checkpoints: pass one of {}.".format(
            where, len(found), ", ".join(found)))
  names = file_kinds.list_folder(folder)
  other = any(map(_OTHER_WEIGHTS.match, names))
  raise UserError(
      "{} is a folder without a checkpoint (no *.index): {}.{}".format(
          where, "it holds " + ", ".join(names[:8]) if names else "it is empty",
          " " + _IMPORT if other else ""))


def _is_old_format(path: str) -> bool:
  """Whether a file is a whole checkpoint in the format before TensorFlow 1."""
  if not tf.io.gfile.exists(path):
    return False
  with tf.io.gfile.GFile(path, "rb") as reader:
    size = reader.size()
    reader.seek(max(size - len(file_kinds.TABLE_MAGIC), 0))
    return reader.read() == file_kinds.TABLE_MAGIC


def _explain_missing(path: str) -> str:
  """Ends "--init_checkpoint=PATH"."""
  if tf.io.gfile.exists(path):
    with tf.io.gfile.GFile(path, "rb") as reader:
      kind = file_kinds.describe(path, reader.read(4096))
    remedy = file_kinds.remedy_for(kind) if kind else ""
    if _OTHER_WEIGHTS.match(os.path.basename(path)):
      remedy = _IMPORT
    found = _checkpoints_in(os.path.dirname(path) or ".")
    return " is {}, wanted a checkpoint{} {}".format(
        kind or "a text file", _suggest(found) or ".", remedy).rstrip()
  if _list_shards(path):
    return ": {}.index is missing: copy all files of the checkpoint.".format(
        path)
  folder = os.path.dirname(path) or "."
  text = (": there is no checkpoint of this name: pass the path of its .index "
          "file without the ending \".index\"")
  if not tf.io.gfile.isdir(folder):
    return "{}; there is no folder {}.".format(text, folder)
  names = file_kinds.list_folder(folder)
  if any(map(_OTHER_WEIGHTS.match, names)) and not _checkpoints_in(folder):
    return "{}. {}".format(text, _IMPORT)
  return text + (_suggest(_checkpoints_in(folder)) or ".")


def _suggest(checkpoints: List[str]) -> str:
  if not checkpoints:
    return ""
  return ": did you mean {}?".format(" or ".join(checkpoints[:3]))
