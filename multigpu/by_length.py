"""Rows of similar length next to each other, so that batches are cut well.

Works on windows of serialized rows: the rows of a window are in memory, the
file as a whole never is.
"""
import itertools
from typing import Any, Dict, List, NamedTuple, Union

import tensorflow.compat.v1 as tf

from multigpu import padding
from multigpu import record_files

# Rows that prediction sorts at a time. Their records and results are some tens
# of megabytes.
WINDOW_ROWS = 16384
# Global batches that training sorts at a time, at most.
WINDOW_BATCHES = 100
# Says where a row stood in the input; -1 = a copy that fills up a round.
ROW_NUMBER = "row_number"


class Buckets(NamedTuple):
  """How training groups rows by length."""
  global_batch_size: int
  # Global batches of a window.
  num_batches: int
  seed: int

  @property
  def window_rows(self) -> int:
    """Rows of a window."""
    return self.global_batch_size * self.num_batches


def plan_window(round_rows: int) -> int:
  """Rows of a window of prediction: a whole number of rounds of replicas."""
  return max(1, WINDOW_ROWS // round_rows) * round_rows


def plan_buckets(paths: Union[str, List[str]], global_batch_size: int,
                 seed: int) -> Buckets:
  """Chooses the window of training.

  It is no longer than an epoch: else the copies of a row, being of one length,
  would meet in one batch. Reads no more than a window of the files.
  """
  wanted = WINDOW_BATCHES * global_batch_size
  rows = itertools.chain.from_iterable(
      record_files.iterate_records(path)
      for path in ([paths] if isinstance(paths, str) else paths))
  found = sum(1 for _ in itertools.islice(rows, wanted))
  return Buckets(global_batch_size, max(1, found // global_batch_size), seed)


def sorted_batches(dataset: tf.data.Dataset, table: Dict[str, Any],
                   batch_size: int, round_rows: int) -> tf.data.Dataset:
  """Batches of prediction, of each window the longest rows first.

  So memory that does not suffice shows at once. Each window is filled up to
  whole rounds with copies of its shortest row.

  Args:
    dataset: serialized rows.
    table: their record table, with sequences.
    batch_size: rows of one replica.
    round_rows: rows of all replicas.

  Returns:
    A dataset of (serialized [batch_size], row numbers int32 [batch_size]).
  """
  window_rows = plan_window(round_rows)

  def sort(window: tf.Tensor, serialized: tf.Tensor):
    num_rows = tf.shape(serialized)[0]
    order = _order_by_length(serialized, table)
    places = tf.range(-(-num_rows // round_rows) * round_rows)
    order = tf.gather(order, tf.minimum(places, num_rows - 1))
    numbers = tf.where(places < num_rows,
                       order + tf.cast(window, tf.int32) * window_rows,
                       -tf.ones_like(order))
    return (tf.reshape(tf.gather(serialized, order), [-1, batch_size]),
            tf.reshape(numbers, [-1, batch_size]))

  return _flatten(dataset.batch(window_rows).enumerate().map(sort))


def bucketed_batches(dataset: tf.data.Dataset, table: Dict[str, Any],
                     batch_size: int, buckets: Buckets,
                     skip_rows: int = 0) -> tf.data.Dataset:
  """Batches of training; the rows of a global batch are of similar length.

  A window of the endless stream is sorted and cut into global batches, which
  are shuffled. So each window has the rows that it has without buckets: nothing
  is left out or comes more often. One that runs over the end of an epoch has
  rows of both, which may be the same ones.

  Args:
    dataset: endless serialized rows, from the first one on.
    table: their record table, with sequences.
    batch_size: rows of one replica; divides the global batch.
    buckets: the windows.
    skip_rows: rows that earlier runs have used up, whole global batches.

  Returns:
    A dataset of serialized [batch_size], global batch after global batch.
  """
  if skip_rows % buckets.global_batch_size:
    raise ValueError("skip_rows={} is no whole number of global batches of "
                     "{}.".format(skip_rows, buckets.global_batch_size))
  first, rest = divmod(skip_rows, buckets.window_rows)

  def sort(window: tf.Tensor, serialized: tf.Tensor) -> tf.Tensor:
    order = tf.reshape(_order_by_length(serialized, table),
                       [buckets.num_batches, buckets.global_batch_size])
    # From the number of the window: a run that goes on draws the same.
    random = tf.random.stateless_uniform(
        [buckets.num_batches], [tf.cast(buckets.seed, tf.int64), window])
    order = tf.gather(order, tf.nn.top_k(random, buckets.num_batches).indices)
    return tf.gather(serialized, tf.reshape(order, [-1, batch_size]))

  windows = dataset.skip(first * buckets.window_rows).batch(
      buckets.window_rows, drop_remainder=True)
  return _flatten(windows.enumerate(first).map(sort).prefetch(1)).skip(
      rest // batch_size)


def _order_by_length(serialized: tf.Tensor, table: Dict[str, Any]) -> tf.Tensor:
  """Indexes of the rows, longest first, equals in their order."""
  return tf.nn.top_k(padding.record_lengths(serialized, table),
                     tf.shape(serialized)[0]).indices


def _flatten(windows: tf.data.Dataset) -> tf.data.Dataset:
  """[batches, ...] -> batch after batch."""
  return windows.flat_map(
      lambda *parts: tf.data.Dataset.from_tensor_slices(
          parts if len(parts) > 1 else parts[0]))
