"""Reads and checks TFRecord files in Python, and says where one is damaged.

TensorFlow's own readers name neither the file nor the record. What is wrong
from the start is found in the first record of each file; damage that shows
later, during a run, is looked for then.
"""
import logging
from typing import Any, Iterator, List, Mapping, NamedTuple, Optional, Union
import warnings

from google.protobuf import message
import tensorflow.compat.v1 as tf

from multigpu.errors import UserError

_LOG = logging.getLogger(__name__)
_NAMED_FILES = 10
# Length and checksum before a record, checksum behind it.
_FRAME_BYTES = 16
# Feature list of a tf.train.Feature by the type in a record table.
_KINDS = {"int64": "int64_list", "float32": "float_list"}


class Expected(NamedTuple):
  """What records should be like."""
  table: Mapping[str, Any]  # {feature name: (shape, dtype)}
  # {feature name: number that its values must stay below}
  limits: Mapping[str, int] = {}
  # {feature name: flag that says how many values it has}
  flags: Mapping[str, str] = {}


def iterate_records(path: str) -> Iterator[bytes]:
  """Yields the records of a file.

  Raises:
    UserError: it cannot be read, or is damaged; names the record.
  """
  number = num_bytes = 0
  try:
    for record in tf.io.tf_record_iterator(path):
      number += 1
      num_bytes += len(record) + _FRAME_BYTES
      yield record
    # TensorFlow takes a file that is cut within a header for one that ends.
    if num_bytes != tf.io.gfile.stat(path).length:
      raise _damaged(path, number + 1, "cut within its header")
  except tf.errors.DataLossError as error:
    raise _damaged(path, number + 1, error.message) from error
  except tf.errors.OpError as error:
    raise UserError("cannot read %s: %s." % (path, error.message)) from error


def _damaged(path: str, number: int, reason: str) -> UserError:
  return UserError(
      "%s, record %d: damaged (%s): the file is incomplete, compressed or "
      "not a TFRecord file. Copy it again or make it anew." % (
          path, number, reason))


def count_records(paths: Union[str, List[str]]) -> int:
  """Number of records in files; reads all of them.

  Raises:
    UserError: see iterate_records.
  """
  return sum(1 for path in _as_list(paths) for _ in iterate_records(path))


def check_files(paths: List[str], expected: Expected,
                strict: bool = False) -> None:
  """Checks the first record of each file, before there is a model.

  Args:
    paths: the files.
    expected: what their records should be like.
    strict: a file without records is an error.

  Raises:
    UserError: a file cannot be read or its first record is not as expected;
      no file has a record.
  """
  empty = []
  for path in paths:
    first = next(iterate_records(path), None)
    if first is None:
      empty.append(path)
      continue
    problem = find_problem(first, expected)
    if problem:
      raise UserError("%s, record 1: %s" % (path, problem))
  if len(empty) == len(paths):
    raise UserError("%s: no records in %s: make them with "
                    "create_pretraining_data.py." % (
                        _name_some(paths), "it" if len(paths) == 1 else "them"))
  if empty:
    summary = "read %d files, kept %d, skipped %d without records: %s" % (
        len(paths), len(paths) - len(empty), len(empty), _name_some(empty))
    if strict:
      raise UserError("%s. With --strict=True that is an error." % summary)
    _LOG.warning("%s", summary)


def find_problem(record: bytes, expected: Expected) -> Optional[str]:
  """Says what is wrong with a record, with wanted and remedy; None: nothing."""
  features = _parse_features(record)
  if features is None:
    return ("not a tf.train.Example: give files that "
            "create_pretraining_data.py has made.")
  for name, (shape, dtype) in expected.table.items():
    if name not in features:
      return "no feature %r, there is only %s: is it a file of this task?" % (
          name, _name_some(sorted(features)) or "none")
    kind = features[name].WhichOneof("kind")
    if kind != _KINDS[dtype]:
      return "feature %r is %s, wanted %s." % (name, kind, _KINDS[dtype])
    values = getattr(features[name], kind).value
    wanted = int(shape[0]) if shape else 1
    if len(values) != wanted:
      return _describe_length(name, len(values), wanted, expected)
    limit = expected.limits.get(name)
    if limit is not None and not all(0 <= value < limit for value in values):
      return _describe_limit(name, values, limit)
  return None


def _parse_features(record: bytes) -> Any:
  """Returns {name: tf.train.Feature}; None where it is no tf.train.Example."""
  # Old protobuf only warns of bytes that it cannot read. The warning must not
  # become an exception there: it would be raised in the midst of C code.
  with warnings.catch_warnings(record=True) as problems:
    warnings.simplefilter("always")
    try:
      features = tf.train.Example.FromString(record).features.feature
    except (message.DecodeError, UnicodeDecodeError):
      return None
  return None if problems else features


def _describe_length(name: str, found: int, wanted: int,
                     expected: Expected) -> str:
  flag = expected.flags.get(name)
  if flag is None:
    return "feature %r has %d values, wanted %d." % (name, found, wanted)
  return ("feature %r has %d values, but --%s=%d: pass --%s=%d, as the records "
          "were made, or make them anew." % (name, found, flag, wanted, flag,
                                             found))


def _describe_limit(name: str, values: Any, limit: int) -> str:
  wrong = next(value for value in values if not 0 <= value < limit)
  return ("feature %r holds %d, wanted 0 to %d: the records were made with "
          "another vocabulary or other lengths than those of this model."
          % (name, wrong, limit - 1))


def explain_errors(error: Exception, paths: Union[str, List[str]],
                   expected: Expected) -> None:
  """Raises UserError where damaged records are the reason for an error.

  To be called when TensorFlow has failed in the midst of a run; reads the
  files from the start.

  Args:
    error: what TensorFlow has raised.
    paths, expected: as for check_files.

  Raises:
    UserError: names the file, the record and what is wrong with it.
  """
  if not _may_be_about_records(error):
    return
  _LOG.error("A record cannot be read: looking for it in the files.")
  for path in _as_list(paths):
    for number, record in enumerate(iterate_records(path), 1):
      problem = find_problem(record, expected)
      if problem:
        raise UserError("%s, record %d: %s" % (path, number,
                                               problem)) from error


def _may_be_about_records(error: Exception) -> bool:
  if isinstance(error, tf.errors.DataLossError):
    return True
  return isinstance(error, tf.errors.InvalidArgumentError) and any(
      word in str(error) for word in ("Example", "Feature", "Key:"))


def _as_list(paths: Union[str, List[str]]) -> List[str]:
  return [paths] if isinstance(paths, str) else paths


def _name_some(names: List[str]) -> str:
  more = len(names) - _NAMED_FILES
  return ", ".join(names[:_NAMED_FILES]) + (
      " and %d more" % more if more > 0 else "")
