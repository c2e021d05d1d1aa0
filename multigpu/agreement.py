"""What all hosts of a run must have in common before they train.

TensorFlow checks none of it: with another batch on one host it would wait
forever, with other rows or another first step it would train something else.
"""
import contextlib
import os
from typing import Any, Iterator, List, Mapping, Optional
import zlib

import tensorflow.compat.v1 as tf

from multigpu.errors import UserError
from multigpu.hosts import Hosts
from multigpu.meeting import Meeting


@contextlib.contextmanager
def common_training(meeting: Optional[Meeting]) -> Iterator[None]:
  """Trains with the other hosts inside; does nothing without any.

  Raises:
    UserError: another host has ended.
  """
  if meeting is None:
    yield
    return
  try:
    with meeting.hosts.environment():
      yield
  except SystemExit:
    # All stop, and the others wait until the chief has saved.
    meeting.leave()
    raise
  # TensorFlow takes the loss of a host for one that passes, and tries to start
  # its session anew; in TensorFlow 2 that ends with a RuntimeError.
  except (tf.errors.OpError, RuntimeError) as error:
    failure = meeting.wait_for_failure()
    if failure:
      raise UserError(failure) from error
    raise
  meeting.leave()


def check_settings(meeting: Meeting, settings: Mapping[str, Any]) -> None:
  """Checks that all hosts train the same.

  Args:
    meeting: the hosts.
    settings: {name for the user: anything with a repr}.

  Raises:
    UserError: on all hosts, with what differs.
  """
  everyone = meeting.gather("prepare the training", {
      name: repr(value) for name, value in settings.items()})
  chief = everyone[0]
  different = [
      "{}: {} on {}, {} on {}".format(
          name, chief.get(name), meeting.hosts.describe(0), other.get(name),
          meeting.hosts.describe(rank))
      for rank, other in enumerate(everyone)
      for name in chief if other.get(name) != chief.get(name)]
  if different:
    raise UserError(
        "the hosts do not train the same: start one command on all of them, "
        "with the same files.\n  {}".format("\n  ".join(different)))


def share_checkpoint(meeting: Meeting, own_dir: str) -> None:
  """Has all hosts start from the chief's newest checkpoint.

  Estimator loads it on each host, from the host's own folder. There the others
  get a note that names the chief's file.

  Args:
    meeting: the hosts.
    own_dir: output_dir on the chief, a folder in it on the others.

  Raises:
    UserError: on all hosts; one of them does not see the checkpoint.
  """
  hosts = meeting.hosts
  path = tf.train.latest_checkpoint(own_dir) if hosts.is_chief else None
  wanted = meeting.gather("find its checkpoint", path and [
      os.path.basename(path), _fingerprint(path)])[0]
  problem = None
  if not hosts.is_chief:
    problem = _note_checkpoint(hosts, own_dir, wanted)
  for found in meeting.gather("find the checkpoint", problem):
    if found:
      raise UserError(found)


def _note_checkpoint(hosts: Hosts, own_dir: str,
                     wanted: Optional[List[Any]]) -> Optional[str]:
  """Makes `own_dir` name the checkpoint; returns what is wrong with it."""
  tf.io.gfile.makedirs(own_dir)
  note = os.path.join(own_dir, "checkpoint")
  if wanted is None:
    if tf.io.gfile.exists(note):
      tf.io.gfile.remove(note)
    return None
  name, fingerprint = wanted
  path = os.path.join(os.path.dirname(own_dir), name)
  if not tf.train.checkpoint_exists(path) or _fingerprint(path) != fingerprint:
    return (
        "the chief goes on from {}, but {} has no such file, or another one, "
        "at {}: let all hosts see one --output_dir, or copy the files {}.* of "
        "the chief there.".format(name, hosts.describe(), path, name))
  if "://" in path:
    # A note can tell an absolute path, but TensorFlow takes this for none.
    path = _copy_checkpoint(path, own_dir)
  else:
    path = os.path.abspath(path)
  tf.train.update_checkpoint_state(own_dir, path)
  return None


def _copy_checkpoint(path: str, folder: str) -> str:
  """Copies a checkpoint in place of an older copy; returns its name."""
  for old in tf.io.gfile.glob(os.path.join(folder, "model.ckpt-*")):
    tf.io.gfile.remove(old)
  for source in tf.io.gfile.glob(path + ".*"):
    tf.io.gfile.copy(
        source, os.path.join(folder, os.path.basename(source)))
  return os.path.basename(path)


def _fingerprint(checkpoint: str) -> int:
  """Of the index, which has checksums of all values."""
  with tf.io.gfile.GFile(checkpoint + ".index", "rb") as reader:
    return zlib.crc32(reader.read()) & 0xffffffff


def describe_files(paths: Any) -> List[Any]:
  """Names and sizes, which differ where the rows do."""
  return [(os.path.basename(path), tf.io.gfile.stat(path).length)
          for path in ([paths] if isinstance(paths, str) else paths)]
