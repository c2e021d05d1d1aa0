"""Small files: JSON that is read, results that appear whole or not at all.

Every path of a user goes through `tf.io.gfile`, so that gs:// and hdfs:// work
where TensorFlow reads them. TensorFlow is imported inside the functions:
modules that only touch a small file stay quick to import and test.
"""
import json
import os
from typing import Any

from multigpu.errors import UserError


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
  temporary = "%s.tmp-%d" % (path, os.getpid())
  try:
    with tf.io.gfile.GFile(temporary, "w") as stream:
      stream.write(text)
    tf.io.gfile.rename(temporary, path, overwrite=True)
  except tf.errors.OpError as error:
    if tf.io.gfile.exists(temporary):
      tf.io.gfile.remove(temporary)
    raise UserError(
        "cannot write %s (%s): its folder must exist, be writable and have "
        "room for the file." % (path, error.message)) from error


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
        "%s is not UTF-8 text (byte 0x%02x at offset %d): save it as UTF-8." %
        (path, error.object[error.start], error.start)) from error
  except ValueError as error:
    raise UserError("%s is not JSON (%s): was it copied or downloaded "
                    "completely?" % (path, error)) from error
