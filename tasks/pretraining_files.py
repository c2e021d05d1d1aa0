"""Files of any file system, without TensorFlow for those of this machine.

Paths with a scheme (gs://, hdfs://) go through tf.io.gfile. Local ones do
not: importing TensorFlow takes longer, and more memory, than turning a small
corpus into records.
"""
import collections
import glob
import logging
import os
from typing import IO, Any, List

from multigpu.errors import UserError
from multigpu.files import temporary_name
from tasks.skipped import name_some

_LOG = logging.getLogger(__name__)

_COPY_BYTES = 1 << 20


def is_remote(path: str) -> bool:
  """True for a path that only tf.io.gfile can open."""
  return "://" in path


def _gfile() -> Any:
  import tensorflow.compat.v1 as tf
  return tf.io.gfile


def open_file(path: str, mode: str, flag: str) -> IO[bytes]:
  """Opens a file in a binary mode.

  Args:
    path: the file.
    mode: "rb" or "wb".
    flag: where the path comes from, for the message.

  Raises:
    UserError: the file cannot be opened.
  """
  try:
    if not is_remote(path):
      return open(path, mode)
    stream = _gfile().GFile(path, mode)
    if mode == "rb":
      stream.size()  # GFile itself opens nothing
    return stream
  except Exception as error:
    if not _is_file_error(error):
      raise
    action = "write" if mode == "wb" else "read"
    raise UserError("--%s: cannot %s %s: %s." % (
        flag, action, path, _describe(error))) from error


def _is_file_error(error: Exception) -> bool:
  # Errors of gfile have `error_code`; naming their class needs TensorFlow.
  return isinstance(error, OSError) or hasattr(error, "error_code")


def _describe(error: Any) -> str:
  return getattr(error, "strerror", None) or getattr(error, "message", error)


def find_files(patterns: str, flag: str) -> List[str]:
  """Returns the files that a comma list of names and globs stands for.

  They come in the order of the list, the files of one glob by name: the order
  is the same on every file system.

  Raises:
    UserError: the list is empty, an entry matches nothing or a folder.
  """
  found: List[str] = []
  for pattern in split_list(patterns, flag):
    if is_remote(pattern):
      matches = _gfile().glob(pattern)
    elif os.path.exists(pattern):
      matches = [pattern]  # also a name that has a bracket in it
    else:
      matches = glob.glob(pattern)
    if not matches:
      raise UserError("--%s: no file matches %s: give files or globs, "
                      "separated by commas." % (flag, pattern))
    found += sorted(matches)
  for path in found:
    if not is_remote(path) and os.path.isdir(path):
      raise UserError("--%s: %s is a folder: give its files, such as %s."
                      % (flag, path, os.path.join(path, "*")))
  counts = collections.Counter(found)
  repeated = [path for path, count in counts.items() if count > 1]
  if repeated:
    _LOG.warning("--%s: %d files are named more than once, and count as often: "
                 "%s", flag, len(repeated), name_some(repeated))
  return found


def split_list(value: str, flag: str) -> List[str]:
  """Splits a comma list of paths; empty entries are left out.

  Raises:
    UserError: nothing is left.
  """
  entries = [entry.strip() for entry in value.split(",") if entry.strip()]
  if not entries:
    raise UserError("--%s=%s names no file: give at least one." % (flag, value))
  return entries


def get_size(path: str) -> int:
  """Returns the size of a file in bytes."""
  if is_remote(path):
    return _gfile().stat(path).length
  return os.path.getsize(path)


def check_outputs(outputs: List[str], inputs: List[str], flag: str) -> None:
  """Checks the names of files to be written, before anything is.

  Raises:
    UserError: a file twice, one that is read as well, a folder, or a file in
      a folder that does not exist.
  """
  read = {_identity(path) for path in inputs}
  seen = set()
  for path in outputs:
    identity = _identity(path)
    if identity in read:
      raise UserError("--%s: %s is also an input file, which would be lost: "
                      "choose another name." % (flag, path))
    if identity in seen:
      raise UserError("--%s: %s is there twice: each file can be written only "
                      "once." % (flag, path))
    seen.add(identity)
    if is_remote(path):
      continue
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
      raise UserError("--%s: cannot write %s: there is no folder %s; make it "
                      "first." % (flag, path, folder))
    if os.path.isdir(path):
      raise UserError("--%s: %s is a folder: give the name of a file, such as "
                      "%s." % (flag, path, os.path.join(path, "tf_examples."
                                                        "tfrecord")))


def _identity(path: str) -> str:
  return path if is_remote(path) else os.path.realpath(path)


class OutputFiles:
  """Files that all appear together, whole, or not at all.

  They are written under temporary names beside the final ones. Leaving the
  `with` block gives them their names, or removes them after an error.
  """

  def __init__(self, paths: List[str], flag: str):
    """Opens them all; UserError when one cannot be written."""
    self._paths = paths
    self._temporary = [temporary_name(path) for path in paths]
    self._streams: List[IO[bytes]] = []
    try:
      for path in self._temporary:
        self._streams.append(open_file(path, "wb", flag))
    except UserError:
      self._remove()
      raise

  def write(self, index: int, data: Any) -> None:
    """Appends bytes to a file."""
    self._streams[index].write(bytes(data))

  def append(self, index: int, part: str) -> None:
    """Appends the content of the local file `part` to a file."""
    with open(part, "rb") as reader:
      for data in iter(lambda: reader.read(_COPY_BYTES), b""):
        self._streams[index].write(data)

  def __enter__(self) -> "OutputFiles":
    return self

  def __exit__(self, error_type: Any, error: Any, traceback: Any) -> None:
    if error_type is not None:
      self._remove()
      return
    try:
      for stream in self._streams:
        stream.close()
    except BaseException:  # a full disk shows at the end
      self._remove()
      raise
    for temporary, path in zip(self._temporary, self._paths):
      if is_remote(path):
        _gfile().rename(temporary, path, overwrite=True)
      else:
        os.replace(temporary, path)

  def _remove(self) -> None:
    for stream, path in zip(self._streams, self._temporary):
      try:
        stream.close()
      except OSError:
        pass  # the disk is full: the error is already under way
      if is_remote(path):
        _gfile().remove(path)
      elif os.path.exists(path):
        os.remove(path)
