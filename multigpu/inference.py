"""Prediction on all replicas: every row once, in the order of the input.

`Estimator.predict` uses one device whatever the strategy; this loop gives
every replica a batch in each round.
"""
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf
from tqdm import tqdm

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


def iterate_predictions(
    model_fn: Callable[..., Any], input_fn: Callable[[Any], Any],
    devices: Devices, settings: InferenceSettings
) -> Iterator[Dict[str, np.ndarray]]:
  """Yields {name: [rows, ...]}, a round of all replicas at a time.

  Args:
    model_fn: as for Estimator; its PREDICT spec gives the predictions.
    input_fn: takes params; full batches in input order, a whole number of
      rounds (`records.inference_dataset`).
    devices: the replicas.
    settings: rows, batch, checkpoint.

  Yields:
    The rows in input order, each exactly once, without padding.
  """
  params = {"batch_size": settings.per_replica_batch_size}
  with tf.Graph().as_default():
    tf.set_random_seed(settings.seed)
    fetches, initializer = _build(model_fn, input_fn, devices, params)
    init_op = tf.global_variables_initializer()
    saver = tf.train.Saver()
    with tf.Session(config=devices.session_config) as session, tqdm(
        total=settings.num_rows, desc=settings.title, unit="row",
        disable=settings.title is None, mininterval=1.0) as progress:
      if settings.checkpoint:
        saver.restore(session, settings.checkpoint)
      else:
        session.run(init_op)
      session.run(initializer)
      done = 0
      while done < settings.num_rows:
        parts = session.run(fetches)
        batch = {name: np.concatenate(values)[:settings.num_rows - done]
                 for name, values in parts.items()}
        num_rows = len(next(iter(batch.values())))
        done += num_rows
        progress.update(num_rows)
        yield batch


# Without AutoGraph, see `training.train`.
@tf.autograph.experimental.do_not_convert
def _build(model_fn, input_fn, devices, params):
  """Builds the graph; returns ({name: one tensor a replica}, initializer)."""
  strategy = devices.strategy
  with strategy.scope():
    tf.train.get_or_create_global_step()
    iterator = strategy.make_input_fn_iterator(lambda _: input_fn(params))

    def replica_fn(features):
      return model_fn(features, None, tf.estimator.ModeKeys.PREDICT,
                      params).predictions

    predictions = strategy.extended.call_for_each_replica(
        replica_fn, args=(iterator.get_next(),))
    fetches = {name: strategy.experimental_local_results(value)
               for name, value in predictions.items()}
    initializer = iterator.initialize()
  return fetches, initializer
