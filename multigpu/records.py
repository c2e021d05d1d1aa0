"""TFRecord files: one table of features writes and reads them.

A table maps a feature's name to (shape, dtype), dtype "int64" or "float32".
Integers are stored as int64 and read as int32, as Google's scripts do.
"""
import contextlib
from typing import (Any, Dict, Iterator, List, Mapping, NamedTuple, Optional,
                    Sequence, Union)

import tensorflow.compat.v1 as tf

from multigpu import by_length
from multigpu import examples
from multigpu import files
from multigpu import padding
from multigpu import record_files
from multigpu.errors import UserError

RecordTable = examples.RecordTable

# Rows that the training order is drawn from. Records are about a kilobyte, so
# this is some megabytes.
SHUFFLE_BUFFER = 10000
# Files whose rows are mixed, and which are read in parallel.
FILES_AT_ONCE = 8


class RecordWriter:
  """Writes records; the file appears under its name when it is whole."""

  def __init__(self, path: str, table: RecordTable):
    self._path = path
    self._temporary = files.temporary_name(path)
    self._table = table
    with self._explained_errors():
      self._writer = tf.io.TFRecordWriter(self._temporary)
    self.num_records = 0

  def write(self, values: Mapping[str, Sequence[Any]]) -> None:
    """Appends one record; `values` has the flat values of each feature."""
    self.write_serialized(serialize(values, self._table))

  def write_serialized(self, example: bytes) -> None:
    """Appends one record: a tf.train.Example that is serialized already."""
    with self._explained_errors():
      self._writer.write(example)
    self.num_records += 1

  def close(self) -> None:
    """Finishes the file and gives it its name."""
    with self._explained_errors():
      self._writer.close()
      tf.io.gfile.rename(self._temporary, self._path, overwrite=True)

  @contextlib.contextmanager
  def _explained_errors(self) -> Iterator[None]:
    """Makes TensorFlow's errors a UserError; removes the file."""
    try:
      yield
    except tf.errors.OpError as error:
      self._remove()
      raise UserError(files.describe_write_error(self._path, error)) from error

  def _remove(self) -> None:
    # On a full disk the close fails too: the error is under way already.
    with contextlib.suppress(tf.errors.OpError):
      tf.io.gfile.remove(self._temporary)

  def __enter__(self) -> "RecordWriter":
    return self

  def __exit__(self, error_type, error, traceback) -> None:
    if error_type is None:
      self.close()
    else:
      with contextlib.suppress(tf.errors.OpError):
        self._writer.close()
      self._remove()


def serialize(values: Mapping[str, Sequence[Any]], table: RecordTable) -> bytes:
  """Encodes one row as a tf.train.Example."""
  return examples.encode_row(values, table)


def parse_batch(serialized: tf.Tensor, table: RecordTable) -> Dict[str, Any]:
  """Decodes [batch_size] records into {name: [batch_size, *shape]}."""
  spec = {name: tf.io.FixedLenFeature(shape, tf.as_dtype(dtype))
          for name, (shape, dtype) in table.items()}
  parsed = tf.io.parse_example(serialized, spec)
  return {name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
          for name, value in parsed.items()}


class Share(NamedTuple):
  """The replicas of one host, among those of all hosts."""
  num_replicas: int  # of all hosts
  first_replica: int
  num_local_replicas: int


class TrainingOrder(NamedTuple):
  """Which rows a training run sees, in which order."""
  seed: int = 0
  # Rows that earlier runs of this training have used up.
  skip_rows: int = 0
  # Rows of similar length meet in a global batch; None = as they come.
  buckets: Optional[by_length.Buckets] = None
  # The batches of this host alone; None = it has all replicas.
  share: Optional[Share] = None


def training_dataset(paths: Union[str, List[str]], table: RecordTable,
                     batch_size: int, order: TrainingOrder,
                     length_multiple: int = 0) -> tf.data.Dataset:
  """An endless stream of full batches of one replica.

  The stream of rows depends on the seed alone. Under MirroredStrategy the
  replicas take batches from it in turn, so N replicas with batches of B rows
  train on the same N x B rows a step as one with a batch of N x B. So do those
  of several hosts: each host reads the whole stream and takes its batches out
  of it. Each batch is cut by itself, see `padding.cut_batch`; 0 = none is.
  """
  dataset = _read_shuffled_files(paths, order.seed)
  # Before `repeat`: every row comes once before any comes again.
  dataset = dataset.shuffle(SHUFFLE_BUFFER, seed=order.seed,
                            reshuffle_each_iteration=True)
  dataset = dataset.repeat()
  if order.buckets:
    dataset = by_length.bucketed_batches(dataset, table, batch_size,
                                         order.buckets, order.skip_rows)
  else:
    dataset = dataset.skip(order.skip_rows).batch(batch_size,
                                                  drop_remainder=True)
  if order.share:
    dataset = _take_share(dataset, order.share)
  return _parse(dataset, table, length_multiple)


def _take_share(batches: tf.data.Dataset, share: Share) -> tf.data.Dataset:
  """Of each round of batches, one a replica, those of this host.

  For example with 2 hosts x 2 replicas: host 0 takes the batches 0, 1, 4, 5 ...
  TensorFlow itself shards no dataset that comes from an input_fn.
  """
  def is_ours(number, _):
    replica = number % share.num_replicas - share.first_replica
    return tf.logical_and(replica >= 0, replica < share.num_local_replicas)

  return batches.enumerate().filter(is_ours).map(lambda _, rows: rows)


def _read_shuffled_files(paths: Union[str, List[str]],
                         seed: int) -> tf.data.Dataset:
  """Rows of all files, in turns; several are read at the same time.

  The order is that of one reader: it depends on the seed alone.
  """
  if isinstance(paths, str) or len(paths) == 1:
    return tf.data.TFRecordDataset(paths)
  files = tf.data.Dataset.from_tensor_slices(paths).shuffle(
      len(paths), seed=seed, reshuffle_each_iteration=True)
  at_once = min(len(paths), FILES_AT_ONCE)
  return files.interleave(tf.data.TFRecordDataset, cycle_length=at_once,
                          num_parallel_calls=at_once)


def inference_dataset(paths: Union[str, List[str]], table: RecordTable,
                      batch_size: int, num_rows: int,
                      num_replicas: int = 1) -> tf.data.Dataset:
  """All rows once, in order, filled up to full rounds of all replicas.

  Every replica gets the same number of full batches; what is missing is
  filled with copies of the first row, which the caller drops (they come
  last). An incomplete last round would be a race in TensorFlow 1.15.
  """
  dataset = tf.data.TFRecordDataset(paths)
  padding = -num_rows % (batch_size * num_replicas)
  if padding:
    dataset = dataset.concatenate(dataset.take(1).repeat(padding))
  return _parse(dataset.batch(batch_size, drop_remainder=True), table)


def sorted_inference_dataset(paths: Union[str, List[str]], table: RecordTable,
                             batch_size: int, num_rows: int,
                             num_replicas: int = 1,
                             length_multiple: int = padding.LENGTH_MULTIPLE
                             ) -> tf.data.Dataset:
  """The first `num_rows` rows once, sorted by length and cut, in full rounds.

  One more feature, `by_length.ROW_NUMBER`, tells where a row stood; see
  `by_length.sorted_batches` for the order and for what fills up rounds.
  """
  dataset = by_length.sorted_batches(
      tf.data.TFRecordDataset(paths).take(num_rows), table, batch_size,
      batch_size * num_replicas)
  return dataset.map(
      lambda rows, numbers: dict(
          padding.cut_batch(parse_batch(rows, table), table, length_multiple),
          **{by_length.ROW_NUMBER: numbers}),
      num_parallel_calls=2).prefetch(2)


def count_rows(paths: Union[str, List[str]]) -> int:
  """Number of records in files; reads all of them.

  Raises:
    UserError: a file is damaged or cannot be read.
  """
  return record_files.count_records(paths)


def _parse(batches: tf.data.Dataset, table: RecordTable,
           length_multiple: int = 0) -> tf.data.Dataset:
  """Parses batches (a batch at once: far cheaper), cuts and prefetches them."""
  return batches.map(
      lambda rows: padding.cut_batch(parse_batch(rows, table), table,
                                     length_multiple),
      num_parallel_calls=2).prefetch(2)
