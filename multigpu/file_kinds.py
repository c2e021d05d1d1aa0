"""What kind of file a path leads to, told from its name and first bytes.

A wrong path mostly leads to a file of another kind: a folder, an archive that
was not unpacked, the web page of a refused download. Naming it is half the
remedy. No TensorFlow is imported for files of this machine, see
tasks/pretraining_files.py.
"""
import difflib
import os
import re
from typing import Any, List, Optional

from multigpu.errors import UserError

_HEAD_BYTES = 4096
# The last eight bytes of a LevelDB table, which an .index file is, and a whole
# checkpoint in TensorFlow's oldest format.
TABLE_MAGIC = b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"
# A record: length (8 bytes), checksum (4), data, checksum (4).
_RECORD_OVERHEAD = 16

_TORCH = "PyTorch weights"
_BINARY = "a binary file"
_CHECKPOINT_PART = re.compile(r"\.(index|data-\d{5}-of-\d{5})$")
_MAGIC = (
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"\x89HDF", "an HDF5 file of Keras"),
    (b"\x80\x02", _TORCH),
    (b"%PDF", "a PDF"),
    (b"\xff\xfe", "text in UTF-16"),
    (b"\xfe\xff", "text in UTF-16"),
    (b"version https://git-lfs", "a pointer of Git LFS, not the file itself"),
)
_REMEDIES = (
    ("archive", "Unpack it and pass the file in it."),
    (_TORCH, "scripts/import_checkpoint.py makes a checkpoint of a Hugging "
             "Face model."),
    ("safetensors", "scripts/import_checkpoint.py makes a checkpoint of it."),
    ("UTF-16", "Save it as UTF-8 (iconv -f UTF-16 -t UTF-8)."),
    ("Git LFS", "Fetch it with: git lfs pull"),
    ("web page", "Download it again: the server answered with a page."),
    ("checkpoint", "Give checkpoints to --init_checkpoint."),
)


def describe(path: str, head: bytes) -> Optional[str]:
  """Names the kind of a file that is neither text nor records.

  Args:
    path: its name.
    head: its first bytes.

  Returns:
    For example "a gzip archive"; None for what looks like text.
  """
  if head.startswith(b"PK\x03\x04"):
    is_torch = b".pkl" in head or path.endswith((".bin", ".pt", ".pth"))
    return _TORCH if is_torch else "a zip archive"
  if head[8:9] == b"{" and b"\0\0\0" in head[:8]:
    return "safetensors weights"
  if head[:64].lstrip().lower().startswith((b"<!doctype", b"<html")):
    return "a web page"
  for magic, kind in _MAGIC:
    if head.startswith(magic):
      return kind
  if b"\0" in head:
    if _CHECKPOINT_PART.search(path):
      return "a part of a checkpoint"
    return ("records (TFRecord)" if is_record_start(head, len(head) + 2**32)
            else _BINARY)
  return None


def remedy_for(kind: str) -> str:
  """What to do about a file of the wrong kind, "" where nothing is known."""
  return next((remedy for word, remedy in _REMEDIES if word in kind), "")


def is_record_start(head: bytes, file_size: int) -> bool:
  """Whether a TFRecord file of this size can begin with these bytes."""
  if len(head) < _RECORD_OVERHEAD:
    return False
  length = int.from_bytes(head[:8], "little")
  return length + _RECORD_OVERHEAD <= file_size


def check_text_file(path: str, flag: str, wanted: str,
                    is_corpus: bool = False) -> None:
  """Checks that a file is there and can be text.

  Args:
    path: the value of a flag, or a file that it stands for.
    flag: its name, without dashes.
    wanted: what the file should be, for example "the vocab.txt of the model".
    is_corpus: one of many text files: it may be empty and have NUL characters,
      which the tokenizer drops.

  Raises:
    UserError: there is none, or it is of another kind.
  """
  head = read_head(path, flag, wanted, may_be_empty=is_corpus)
  kind = describe(path, head)
  if kind and not (is_corpus and kind == _BINARY):
    raise UserError("--{}={} is {}, wanted {}. {}".format(
        flag, path, kind, wanted, remedy_for(kind)).strip())


def check_record_file(path: str, flag: str) -> None:
  """Checks that a file is there and can be a TFRecord file.

  An empty one passes: whoever counts its rows has something to say.

  Raises:
    UserError: there is none, or it is of another kind.
  """
  wanted = "TFRecord files of create_pretraining_data.py"
  head = read_head(path, flag, wanted, may_be_empty=True)
  if head and not is_record_start(head, _size_of(path)):
    kind = describe(path, head) or "text"
    raise UserError("--{}: {} is {}, wanted {}. {}".format(
        flag, path, kind, wanted, remedy_for(kind)).strip())


def read_head(path: str, flag: str, wanted: str,
              may_be_empty: bool = False) -> bytes:
  """Reads the first bytes of a file; arguments as for check_text_file.

  Raises:
    UserError: no file, no right to read it, or nothing in it.
  """
  if not path:
    raise UserError("--{} is empty: pass the path of {}.".format(flag, wanted))
  where = "--{}={}".format(flag, path)
  if _is_folder(path):
    raise UserError("{} is a folder, wanted {}{}".format(
        where, wanted, _describe_content(path)))
  if not _exists(path):
    raise UserError("{}: there is no such file, wanted {}{}".format(
        where, wanted, suggest(path)))
  try:
    with _open(path) as reader:
      head = reader.read(_HEAD_BYTES)
  except Exception as error:
    if not _is_file_error(error):
      raise
    raise UserError("{} cannot be read: {}.".format(
        where, getattr(error, "strerror", None) or error)) from error
  if not head and not may_be_empty:
    raise UserError(
        "{} is empty (0 bytes), wanted {}: was it copied or downloaded "
        "completely?".format(where, wanted))
  return head


def suggest(path: str) -> str:
  """What there is in place of a missing file, to end a sentence with."""
  folder = os.path.dirname(path) or "."
  if not _is_folder(folder):
    return ": there is no folder {}.".format(folder)
  names = list_folder(folder)
  close = difflib.get_close_matches(os.path.basename(path), names, 2, 0.7)
  if close:
    return ": did you mean {}?".format(
        " or ".join(os.path.join(os.path.dirname(path), name)
                    for name in close))
  return _describe_content(folder)


def _describe_content(folder: str) -> str:
  names = list_folder(folder)
  if not names:
    return ": the folder {} is empty.".format(folder)
  return ": the folder {} holds {}{}.".format(
      folder, ", ".join(names[:6]),
      " and {} more".format(len(names) - 6) if len(names) > 6 else "")


def list_folder(folder: str) -> List[str]:
  """Names in a folder, sorted; none where it cannot be read."""
  try:
    names = (_gfile().listdir(folder) if _is_remote(folder)
             else os.listdir(folder))
  except Exception as error:
    if not _is_file_error(error):
      raise
    return []
  return sorted(names)


def _is_remote(path: str) -> bool:
  return "://" in path


def _gfile() -> Any:
  import tensorflow.compat.v1 as tf
  return tf.io.gfile


def _is_folder(path: str) -> bool:
  return _gfile().isdir(path) if _is_remote(path) else os.path.isdir(path)


def _exists(path: str) -> bool:
  return _gfile().exists(path) if _is_remote(path) else os.path.exists(path)


def _open(path: str) -> Any:
  return (_gfile().GFile(path, "rb") if _is_remote(path)
          else open(path, "rb"))


def _size_of(path: str) -> int:
  return (_gfile().stat(path).length if _is_remote(path)
          else os.path.getsize(path))


def _is_file_error(error: Exception) -> bool:
  # Errors of gfile have `error_code`; naming their class needs TensorFlow.
  return isinstance(error, OSError) or hasattr(error, "error_code")
