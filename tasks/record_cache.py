"""Record files that are used again when nothing they are made of has changed.

Beside `train.tf_record` lies `train.tf_record.json`, written last. It tells
what the records were made of (a fingerprint) and what the file looked like
(size, checksum): a file that was cut, replaced or made by another run does not
fit it and is made anew.
"""
import hashlib
import inspect
import json
import logging
import os
import unicodedata
from typing import Any, Callable, Dict, Iterable, Optional, Tuple

import tensorflow.compat.v1 as tf

from multigpu.errors import UserError
from multigpu.files import read_json, write_text_atomically

_LOG = logging.getLogger(__name__)

# To be raised when records change for a reason that the source of the modules
# named to `fingerprint` does not show.
FORMAT = 1

_BLOCK_BYTES = 1 << 20


def fingerprint(parts: Iterable[Any], modules: Iterable[Any]) -> str:
  """Returns a checksum of all that decides over the bytes of a record file.

  Args:
    parts: numbers, strings, and tuples and lists of them.
    modules: Python modules whose code makes the records.
  """
  digest = hashlib.sha256()

  def add(part: Any) -> None:
    # Unlike a string's bytes, its repr says where it ends.
    digest.update(repr(part).encode("utf-8", "surrogatepass") + b"\n")

  # Which characters are letters, and how they decompose, is Python's part.
  add((FORMAT, unicodedata.unidata_version))
  for module in modules:
    add(_read_source(module))
  for part in parts:
    add(part)
  return digest.hexdigest()


def _read_source(module: Any) -> str:
  try:
    return inspect.getsource(module)
  except OSError:  # installed without it: then FORMAT alone has to do
    return module.__name__


def describe_tokenizer(tokenizer: Any) -> Tuple[Any, ...]:
  """What a FullTokenizer makes its word pieces by, for a fingerprint."""
  words = tokenizer.wordpiece_tokenizer
  return (list(tokenizer.vocab.items()), words.unk_token,
          words.max_input_chars_per_word,
          tokenizer.basic_tokenizer.do_lower_case)


def use_or_make(path: str, made_of: str, make: Callable[[], int]) -> int:
  """Makes a record file, unless it is there and made of the same.

  Args:
    path: the record file.
    made_of: the fingerprint.
    make: writes the file, under a temporary name first; returns the number of
      its records.

  Returns:
    The number of its records.

  Raises:
    UserError: the file cannot be written; what `make` raises.
  """
  name, note_path = os.path.basename(path), path + ".json"
  note = _read_note(note_path)
  if (note is not None and note["made_of"] == made_of
      and note["file"] == _describe_file(path)):
    _LOG.info("%s: made before from the same data, used again", name)
    return note["num_records"]
  _LOG.info("%s: being made", name)
  num_records = make()
  write_text_atomically(note_path, json.dumps(
      {"made_of": made_of, "num_records": num_records,
       "file": _describe_file(path)}, indent=2) + "\n")
  return num_records


def _read_note(path: str) -> Optional[Dict[str, Any]]:
  """Returns the note on a record file; None where there is no whole one."""
  try:
    note = read_json(path)
  except UserError:  # most often there is none
    return None
  if not isinstance(note, dict):
    return None
  wanted = {"made_of": str, "num_records": int, "file": dict}
  is_whole = all(isinstance(note.get(key), kind)
                 for key, kind in wanted.items())
  return note if is_whole else None


def _describe_file(path: str) -> Optional[Dict[str, Any]]:
  """Returns size and checksum of a file; None if it cannot be read."""
  digest, num_bytes = hashlib.sha256(), 0
  try:
    with tf.io.gfile.GFile(path, "rb") as stream:
      while True:
        block = stream.read(_BLOCK_BYTES)
        if not block:
          return {"bytes": num_bytes, "sha256": digest.hexdigest()}
        digest.update(block)
        num_bytes += len(block)
  except tf.errors.OpError:
    return None
