"""The checkpoints of a run: which one is the newest whole one.

A checkpoint is several files. TensorFlow writes the data under a temporary
name, gives it its name, writes the index, then names the checkpoint in the
file `checkpoint` (atomically), and only then deletes the oldest one. So a kill
leaves at worst a checkpoint that `checkpoint` does not name yet; but disks that
were full, interrupted copies and power cuts leave others. Which checkpoint is
the newest whole one is decided here alone.
"""
import contextlib
import logging
import os
import re
from typing import Iterator, List, Optional, Sequence, Set, Tuple

import tensorflow.compat.v1 as tf

from multigpu import checkpoint_files
from multigpu import files
from multigpu.errors import UserError

_LOG = logging.getLogger(__name__)

_STATE_FILE = "checkpoint"
_INDEX_FILE = re.compile(r"^(model\.ckpt-(\d+))\.index$")
# What has been warned of: a run asks for its newest checkpoint several times.
_warned: Set[Tuple[str, ...]] = set()


def newest(output_dir: str) -> Optional[str]:
  """The newest whole checkpoint in a folder, without ending; None: none.

  It is the one that the file `checkpoint` names. Where that one is incomplete
  or the file is missing or broken, it is the whole one with the highest step,
  and a warning names both.
  """
  named = _named_in_state(output_dir)
  why = checkpoint_files.find_damage(named) if named else None
  if named and not why:
    return named
  found = next((path for path in _find_checkpoints(output_dir)
                if path != named and is_whole(path)), None)
  if named or found:
    _warn_once(output_dir, named, why, found)
  return found


def repair(output_dir: str) -> None:
  """Has the file `checkpoint` name the newest whole one, as Estimator reads it.

  Nothing is deleted but a file `checkpoint` that is no use.
  """
  path = newest(output_dir)
  state_file = os.path.join(output_dir, _STATE_FILE)
  if path is None:
    if tf.io.gfile.exists(state_file):
      tf.io.gfile.remove(state_file)
  elif path != _named_in_state(output_dir):
    # Those that it named before are still the run's to delete in the end; of
    # others nobody knows why they were kept.
    older = [other for other in _read_state(output_dir, "all_model_")
             if other != path and is_whole(other)]
    write_state(output_dir, [os.path.relpath(other, output_dir)
                             for other in older + [path]])


def write_state(output_dir: str, names: Sequence[str]) -> None:
  """Writes the file `checkpoint`.

  Not through tf.train.update_checkpoint_state: what it writes depends on
  whether the folder's path is absolute.

  Args:
    output_dir: the folder.
    names: checkpoints by their path in it, or absolute; the newest comes last.
  """
  files.write_text_atomically(os.path.join(output_dir, _STATE_FILE), "".join(
      '{}: "{}"\n'.format(key, name) for key, name in
      [("model_checkpoint_path", names[-1])]
      + [("all_model_checkpoint_paths", name) for name in names]))


def is_whole(path: str) -> bool:
  """Whether all files of a checkpoint are there and long enough."""
  return checkpoint_files.find_damage(path) is None


def _named_in_state(output_dir: str) -> Optional[str]:
  """The path that the file `checkpoint` names; None where it is no use."""
  return next(iter(_read_state(output_dir, "model_")), None)


def _read_state(output_dir: str, key: str) -> List[str]:
  """The paths in the file `checkpoint` whose keys begin so."""
  try:
    with tf.io.gfile.GFile(os.path.join(output_dir, _STATE_FILE), "rb") as file:
      text = file.read().decode("utf-8", "replace")
  except tf.errors.OpError:
    return []
  # Not TensorFlow's reader: it takes a broken file for an error of its own.
  return [os.path.join(output_dir, path) for path in re.findall(
      r'^%scheckpoint_paths?: *"(.+)" *$' % key, text, re.M)]


def _find_checkpoints(output_dir: str) -> List[str]:
  """Checkpoints of training runs by their index files, highest step first."""
  try:
    names = tf.io.gfile.listdir(output_dir)
  except tf.errors.OpError:
    return []
  found = [os.path.join(output_dir, match.group(1))
           for match in map(_INDEX_FILE.match, names) if match]
  return sorted(found, key=_step_in_name, reverse=True)


def _step_in_name(path: str) -> int:
  match = re.search(r"-(\d+)$", path)
  return int(match.group(1)) if match else 0


def _warn_once(output_dir: str, named: Optional[str], why: Optional[str],
               found: Optional[str]) -> None:
  key = (output_dir, str(named), str(found))
  if key in _warned:
    return
  _warned.add(key)
  wrong = ("{} is incomplete ({})".format(named, why) if named else
           "the file {} is missing or broken".format(
               os.path.join(output_dir, _STATE_FILE)))
  _LOG.warning("%s: %s", wrong,
               "the newest whole checkpoint is " + found if found else
               "there is no whole checkpoint in " + output_dir)


def latest_step(output_dir: str) -> int:
  """The global step of the newest checkpoint in a folder, 0 without one.

  0 also for one that no training wrote and that has no step.
  """
  path = newest(output_dir)
  if path is None:
    return 0
  reader = tf.train.load_checkpoint(path)
  if not reader.has_tensor("global_step"):
    return 0
  return int(reader.get_tensor("global_step"))


def check_loss_scale(output_dir: str) -> None:
  """Raises UserError if the newest checkpoint in a folder has no loss scale."""
  path = newest(output_dir)
  if "loss_scale" not in dict(tf.train.list_variables(path)):
    raise UserError(
        "--precision=fp16, but {} was trained without it and has no loss "
        "scale: go on with the precision it was trained with, or start in "
        "another --output_dir with --init_checkpoint={}.".format(path, path))


def for_inference(output_dir: str,
                  init_checkpoint: Optional[str]) -> Optional[str]:
  """The newest checkpoint in a folder; None: weights as initialised."""
  path = newest(output_dir)
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


@contextlib.contextmanager
def explained_restore(path: str) -> Iterator[None]:
  """Makes the errors of restoring a checkpoint a UserError."""
  try:
    yield
  except (tf.errors.AbortedError, tf.errors.UnavailableError):
    raise  # for a while only: Estimator tries again
  except (tf.errors.OpError, ValueError) as error:
    lines = str(getattr(error, "message", error)).strip().splitlines()
    raise UserError(
        "cannot restore the checkpoint {}: {}\nIt was written by another "
        "program or with other settings, or is damaged. Pass another "
        "--output_dir, or delete it to go on from an older one.".format(
            path, " ".join(line.strip() for line in lines[:2]))) from error
