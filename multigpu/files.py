"""Small files: JSON that is read, results that appear whole or not at all.

What is being written has a name by which a later run can tell whether its
writer is still alive (`temporary_name`, `remove_leftovers`).

Every path of a user goes through `tf.io.gfile`, so that gs:// and hdfs:// work
where TensorFlow reads them. TensorFlow is imported inside the functions:
modules that only touch a small file stay quick to import and test.
"""
import json
import logging
import os
import platform
import re
import shutil
import time
from typing import Any, Callable, List, NamedTuple

from multigpu.errors import UserError

_LOG = logging.getLogger(__name__)

# Temporary files of ours: <name>.<host>.<process id>.tmp.
_OURS = re.compile(r"\.([A-Za-z0-9_-]+)\.(\d+)\.tmp$")
# TensorFlow's, while it writes a checkpoint, a state file or a graph: they do
# not tell whose they are.
_TENSORFLOWS = re.compile(
    r"^(model\.ckpt-\d+(_temp(_[0-9a-f]+)?|\.index\.tempstate\d+|\.meta\.tmp.*)"
    r"|(checkpoint|graph\.pbtxt)\.?tmp.*)$")
# After so many seconds without a change nobody is writing there any more.
_ABANDONED_AFTER = 600


def _host() -> str:
  return re.sub(r"[^A-Za-z0-9_-]", "-", platform.node()) or "host"


def temporary_name(path: str) -> str:
  """The name of a file while this process writes it; beside `path`."""
  return "%s.%s.%d.tmp" % (path, _host(), os.getpid())


def remove_leftovers(folder: str) -> None:
  """Removes what dead runs were writing in a folder when they died.

  To be called before this process writes there. Only names that we or
  TensorFlow's Saver give to half-written files are looked at, and files of
  a process that may be alive stay: one of this host that is running, or one
  that cannot be asked and has changed within the last ten minutes.
  """
  disk = _file_system(folder)
  try:
    names = disk.listdir(folder)
  except disk.error:  # it is not there yet
    return
  for name in (name.rstrip("/") for name in names):
    path = os.path.join(folder, name)
    try:
      if not _is_abandoned(path, name, disk):
        continue
      (disk.rmtree if disk.isdir(path) else disk.remove)(path)
      _LOG.info("removed %s, which an interrupted run left half-written", path)
    except disk.error as error:  # gone already, or not ours to remove
      _LOG.debug("%s stays: %s", path, error)


class _FileSystem(NamedTuple):
  """Where a path is; TensorFlow only where it is needed."""
  listdir: Callable[[str], List[str]]
  isdir: Callable[[str], bool]
  rmtree: Callable[[str], None]
  remove: Callable[[str], None]
  changed_at: Callable[[str], float]  # seconds since the epoch
  error: Any  # what they raise


def _file_system(path: str) -> _FileSystem:
  if "://" not in path:
    return _FileSystem(os.listdir, os.path.isdir, shutil.rmtree, os.remove,
                       os.path.getmtime, OSError)
  import tensorflow.compat.v1 as tf
  gfile = tf.io.gfile
  return _FileSystem(gfile.listdir, gfile.isdir, gfile.rmtree, gfile.remove,
                     lambda name: gfile.stat(name).mtime_nsec / 1e9,
                     tf.errors.OpError)


def _is_abandoned(path: str, name: str, disk: _FileSystem) -> bool:
  owner = _OURS.search(name)
  if owner and owner.group(1) == _host():
    pid = int(owner.group(2))
    # Its number may be ours by chance: this process has written nothing yet.
    return pid == os.getpid() or not _is_alive(pid)
  if not owner and not _TENSORFLOWS.match(name):
    return False
  paths = [path]  # of a folder: what is newest in it counts
  if disk.isdir(path):
    paths += [os.path.join(path, part) for part in disk.listdir(path)]
  return time.time() - max(map(disk.changed_at, paths)) > _ABANDONED_AFTER


def _is_alive(pid: int) -> bool:
  try:
    os.kill(pid, 0)
  except ProcessLookupError:
    return False
  except (OSError, OverflowError):  # alive, but another user's; no such number
    pass
  return True


def is_want_of_room(error: Any) -> bool:
  """Whether an error of TensorFlow is about a full disk or a limit of it.

  Its class does not tell: a full GPU has the same one.
  """
  return any(text in str(error) for text in (
      "No space left", "Disk quota exceeded", "File too large"))


def describe_write_error(path: str, error: Any) -> str:
  """What the user should know when TensorFlow could not write a file.

  Args:
    path: the file, in a folder that may be missing.
    error: a tf.errors.OpError, or a ValueError of TensorFlow's Saver.
  """
  message = getattr(error, "message", str(error)).strip().splitlines()[0]
  try:
    free = " (%.1f MB are free there)" % (
        shutil.disk_usage(os.path.dirname(os.path.abspath(path))).free / 1e6)
  except OSError:  # no local folder
    free = ""
  return ("cannot write %s (%s)%s: its folder must exist, be writable and have "
          "room. Free some space and start the same command again, or pass "
          "another --output_dir." % (path, message, free))


def write_text_atomically(path: str, text: str) -> None:
  """Writes a text file so that no reader ever sees half of it.

  The text goes to a temporary name beside `path` and is renamed when it is
  complete: after a full disk or a kill, `path` holds what it held before.

  Args:
    path: the file to write; replaced where it exists. Its folder must exist.
    text: the whole content, stored as UTF-8.

  Raises:
    UserError: the file cannot be written there.
  """
  import tensorflow.compat.v1 as tf
  temporary = temporary_name(path)
  try:
    with tf.io.gfile.GFile(temporary, "w") as stream:
      stream.write(text)
    tf.io.gfile.rename(temporary, path, overwrite=True)
  except BaseException as error:
    if tf.io.gfile.exists(temporary):
      tf.io.gfile.remove(temporary)
    if isinstance(error, tf.errors.OpError):
      raise UserError(describe_write_error(path, error)) from error
    raise


def read_json(path: str) -> Any:
  """Reads a JSON file in UTF-8, with or without a byte order mark.

  Raises:
    UserError: the file cannot be read, is not UTF-8 or not JSON.
  """
  import tensorflow.compat.v1 as tf
  try:
    with tf.io.gfile.GFile(path, "rb") as stream:
      return json.loads(stream.read().decode("utf-8-sig"))
  except tf.errors.OpError as error:
    raise UserError("cannot read %s: %s" % (path, error.message)) from error
  except UnicodeDecodeError as error:
    raise UserError(
        "%s is not UTF-8 text (byte 0x%02x at offset %d, line %d): save it as "
        "UTF-8, for example with iconv %s-t UTF-8." %
        (path, error.object[error.start], error.start,
         error.object.count(b"\n", 0, error.start) + 1,
         "-f UTF-16 " if is_utf16(error.object) else "")) from error
  except RecursionError as error:
    raise UserError("%s is not JSON that can be read: its lists and records "
                    "are nested too deeply." % path) from error
  except ValueError as error:
    raise UserError("%s is not JSON (%s): was it copied or downloaded "
                    "completely?" % (path, error)) from error


def is_utf16(content: bytes) -> bool:
  """Whether a file begins as one in UTF-16 does (from a spreadsheet, say)."""
  return content[:2] in (b"\xff\xfe", b"\xfe\xff")
