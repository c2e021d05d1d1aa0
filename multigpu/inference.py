"""Prediction on all replicas: every row once, in the order of the input.

`Estimator.predict` uses one device whatever the strategy; this loop gives
every replica a batch in each round. Rows may go through the model in another
order, and batches may be cut to their longest row: what comes out has the order
and the length of the input.
"""
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple
from typing import Optional

import numpy as np
import tensorflow.compat.v1 as tf
from tqdm import tqdm

from multigpu import checkpoints
from multigpu import interruption
from multigpu.by_length import ROW_NUMBER
from multigpu.devices import Devices


class InferenceSettings(NamedTuple):
  """One pass over the rows of a dataset."""
  # Rows wanted; what the dataset has beyond them is padding.
  num_rows: int
  per_replica_batch_size: int
  # None: weights as the model_fn initialises them.
  checkpoint: Optional[str] = None
  seed: int = 0
  # Name of the progress bar; None = no bar.
  title: Optional[str] = "predict"
  # Rows within which the dataset may have another order, a whole number of
  # rounds; 0 = it has that of the input.
  window_rows: int = 0
  # {prediction with a sequence axis: what it has beyond the cut}, up to
  # full_length.
  fill: Mapping[str, float] = {}
  full_length: int = 0


def iterate_predictions(
    model_fn: Callable[..., Any], input_fn: Callable[[Any], Any],
    devices: Devices, settings: InferenceSettings
) -> Iterator[Dict[str, np.ndarray]]:
  """Yields {name: [rows, ...]}, a window or a round of all replicas at a time.

  Args:
    model_fn: as for Estimator; its PREDICT spec gives the predictions.
    input_fn: takes params; full batches, a whole number of rounds, in input
      order (`records.inference_dataset`) or with the feature ROW_NUMBER
      (`records.sorted_inference_dataset`).
    devices: the replicas.
    settings: rows, batch, checkpoint, order.

  Yields:
    The rows in input order, each exactly once, without padding.
  """
  params = {"batch_size": settings.per_replica_batch_size}
  round_rows = settings.per_replica_batch_size * devices.num_replicas
  window_rows = settings.window_rows or round_rows
  with tf.Graph().as_default():
    tf.set_random_seed(settings.seed)
    fetches, initializer = _build(model_fn, input_fn, devices, params)
    init_op = tf.global_variables_initializer()
    saver = tf.train.Saver()
    with tf.Session(config=devices.session_config) as session, tqdm(
        total=settings.num_rows, desc=settings.title, unit="row",
        disable=settings.title is None, mininterval=1.0) as progress:
      if settings.checkpoint:
        with checkpoints.explained_restore(settings.checkpoint):
          saver.restore(session, settings.checkpoint)
      else:
        session.run(init_op)
      session.run(initializer)
      for first in range(0, settings.num_rows, window_rows):
        window = _Window(
            first, min(window_rows, settings.num_rows - first), settings)
        while window.num_missing:
          progress.update(window.add(session.run(fetches)))
          # Within a training signals wait; this should not be waited for.
          interruption.raise_if_asked()
        yield window.rows


class _Window:
  """Rows that follow each other in the input, come in any order."""

  def __init__(self, first: int, num_rows: int, settings: InferenceSettings):
    self.rows: Dict[str, np.ndarray] = {}
    self.num_missing = num_rows
    self._first = first
    self._num_rows = num_rows
    self._settings = settings

  def add(self, parts: Dict[str, List[np.ndarray]]) -> int:
    """Takes a round, {name: [one array a replica]}; returns its new rows."""
    parts = dict(parts)
    size = self._settings.per_replica_batch_size
    done = self._num_rows - self.num_missing
    # Without numbers the rows are in order, and the last ones are padding.
    numbers = parts.pop(ROW_NUMBER, [
        self._first + done + i * size + np.arange(size)
        for i in range(len(next(iter(parts.values()))))])
    num_new = 0
    for i, replica_numbers in enumerate(numbers):
      places = np.asarray(replica_numbers) - self._first
      is_row = (places >= 0) & (places < self._num_rows)
      num_new += int(is_row.sum())
      for name, values in parts.items():
        target = self._target(name, values[i])
        if name in self._settings.fill:
          target = target[:, :values[i].shape[1]]
        target[places[is_row]] = values[i][is_row]
    self.num_missing -= num_new
    return num_new

  def _target(self, name: str, values: np.ndarray) -> np.ndarray:
    """The array of a prediction; made when its first values come."""
    if name not in self.rows:
      shape = (self._num_rows,) + values.shape[1:]
      if name in self._settings.fill:
        shape = (self._num_rows, self._settings.full_length)
        self.rows[name] = np.full(shape, self._settings.fill[name],
                                  values.dtype)
      else:
        self.rows[name] = np.empty(shape, values.dtype)
    return self.rows[name]


# Without AutoGraph, see `training.train`.
@tf.autograph.experimental.do_not_convert
def _build(model_fn, input_fn, devices, params):
  """Builds the graph; returns ({name: one tensor a replica}, initializer)."""
  strategy = devices.strategy
  with strategy.scope():
    tf.train.get_or_create_global_step()
    iterator = strategy.make_input_fn_iterator(lambda _: input_fn(params))

    def replica_fn(features):
      features = dict(features)
      numbers = features.pop(ROW_NUMBER, None)
      predictions = model_fn(features, None, tf.estimator.ModeKeys.PREDICT,
                             params).predictions
      return (predictions if numbers is None
              else dict(predictions, **{ROW_NUMBER: numbers}))

    predictions = strategy.extended.call_for_each_replica(
        replica_fn, args=(iterator.get_next(),))
    fetches = {name: strategy.experimental_local_results(value)
               for name, value in predictions.items()}
    initializer = iterator.initialize()
  return fetches, initializer
