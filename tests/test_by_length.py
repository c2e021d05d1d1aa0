"""Rows sorted by length: in prediction, and in buckets of training."""
import collections

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from multigpu import by_length
from multigpu import devices as devices_lib
from multigpu import records
from multigpu.sequences import SequenceLength

LENGTH = 40
TABLE = {"id": ((), "int64"),
         "input_mask": ((SequenceLength(LENGTH),), "int64")}
NUM_ROWS = 45
LENGTHS = [int(length) for length in
           np.random.RandomState(1).randint(3, LENGTH + 1, NUM_ROWS)]


@pytest.fixture
def path(tmp_path):
  """A file of rows of many lengths."""
  name = str(tmp_path / "rows.tf_record")
  with records.RecordWriter(name, TABLE) as writer:
    for i, length in enumerate(LENGTHS):
      writer.write({"id": [i],
                    "input_mask": [1] * length + [0] * (LENGTH - length)})
  return name


def rounds(make_dataset, num_replicas, batch_size, count):
  """{name: arrays} of each replica, round by round."""
  devices = devices_lib.set_up(
      devices_lib.DeviceSettings(num_replicas, "cpu"))
  with tf.Graph().as_default(), devices.strategy.scope():
    iterator = devices.strategy.make_input_fn_iterator(
        lambda _: make_dataset(batch_size))
    parts = {name: devices.strategy.experimental_local_results(value)
             for name, value in iterator.get_next().items()}
    with tf.Session(config=devices.session_config) as session:
      session.run(iterator.initialize())
      return [session.run(parts) for _ in range(count)]


def bucketed(path, seed=3, skip_rows=0, num_batches=3):
  order = records.TrainingOrder(
      seed, skip_rows, by_length.Buckets(8, num_batches, seed))
  return lambda batch_size: records.training_dataset(
      path, TABLE, batch_size, order, length_multiple=4)


def ids_of_rounds(found):
  return [np.concatenate(parts["id"]).tolist() for parts in found]


@pytest.mark.parametrize("num_replicas", [2, 4])
def test_buckets_do_not_depend_on_the_replicas(path, num_replicas):
  one = ids_of_rounds(rounds(bucketed(path), 1, 8, 12))
  many = rounds(bucketed(path), num_replicas, 8 // num_replicas, 12)
  assert ids_of_rounds(many) == one
  # Each replica cuts its own batch.
  for parts in many:
    for ids, mask in zip(parts["id"], parts["input_mask"]):
      longest = max(LENGTHS[i] for i in ids)
      assert mask.shape[1] == min(-(-longest // 4) * 4, LENGTH)


def test_a_window_has_the_rows_that_it_has_without_buckets(path):
  plain = ids_of_rounds(rounds(
      lambda size: records.training_dataset(
          path, TABLE, size, records.TrainingOrder(3)), 1, 8, 12))
  buckets = ids_of_rounds(rounds(bucketed(path), 1, 8, 12))
  for start in range(0, 12, 3):
    assert (collections.Counter(sum(buckets[start:start + 3], []))
            == collections.Counter(sum(plain[start:start + 3], [])))
  # The lengths of a batch are next to each other in those of its window.
  spread = lambda batches: sum(
      max(LENGTHS[i] for i in ids) - min(LENGTHS[i] for i in ids)
      for ids in batches)
  assert spread(buckets) < spread(plain) / 2
  longest = [max(LENGTHS[i] for i in ids) for ids in buckets]
  # Not always the longest first, nor the shortest.
  starts = range(0, 12, 3)
  assert len({int(np.argmax(longest[start:start + 3]))
              for start in starts}) > 1


def test_buckets_come_from_the_seed(path):
  first, again, other = (
      ids_of_rounds(rounds(bucketed(path, seed), 1, 8, 6))
      for seed in (3, 3, 4))
  assert again == first
  assert other != first


@pytest.mark.parametrize("num_steps", [1, 3, 5])
def test_going_on_with_buckets(path, num_steps):
  whole = ids_of_rounds(rounds(bucketed(path), 1, 8, 9))
  rest = ids_of_rounds(rounds(bucketed(path, skip_rows=8 * num_steps), 2, 4,
                              9 - num_steps))
  assert rest == whole[num_steps:]


def test_buckets_start_with_a_whole_global_batch(path):
  with pytest.raises(ValueError, match="skip_rows=4"):
    bucketed(path, skip_rows=4)(8)


@pytest.mark.parametrize("global_batch_size, num_batches", [
    (8, 5), (45, 1), (64, 1), (1, 45)])
def test_a_window_is_no_longer_than_an_epoch(path, global_batch_size,
                                             num_batches):
  assert by_length.plan_buckets(path, global_batch_size, 7) == (
      by_length.Buckets(global_batch_size, num_batches, 7))


def test_a_window_has_a_limit(path, monkeypatch):
  monkeypatch.setattr(by_length, "WINDOW_BATCHES", 6)
  # Two files of 45 rows.
  assert by_length.plan_buckets([path] * 2, 8, 0).num_batches == 6


@pytest.mark.parametrize("num_replicas, batch_size", [(1, 4), (2, 4), (3, 2)])
@pytest.mark.parametrize("window_rows", [100, 12])
@pytest.mark.parametrize("num_rows", [NUM_ROWS, 30])
def test_prediction_has_the_longest_rows_of_a_window_first(
    path, monkeypatch, num_replicas, batch_size, window_rows, num_rows):
  monkeypatch.setattr(by_length, "WINDOW_ROWS", window_rows)
  round_rows = num_replicas * batch_size
  window_rows = by_length.plan_window(round_rows)
  assert window_rows % round_rows == 0
  found = rounds(
      lambda size: records.sorted_inference_dataset(
          path, TABLE, size, num_rows, num_replicas),
      num_replicas, batch_size, -(-num_rows // round_rows))
  numbers = np.concatenate(
      [numbers for parts in found for numbers in parts["row_number"]])
  ids = np.concatenate([ids for parts in found for ids in parts["id"]])
  is_row = numbers >= 0
  # Each row once, and the copies come last.
  assert sorted(numbers[is_row]) == list(range(num_rows))
  assert is_row[:num_rows].all()
  assert (ids == numbers)[is_row].all()
  for start in range(0, num_rows, window_rows):
    end = min(start + window_rows, num_rows)
    assert sorted(ids[start:end]) == list(range(start, end))
    lengths = [LENGTHS[i] for i in ids[start:end]]
    assert lengths == sorted(lengths, reverse=True)
  # Copies are no longer than what is there anyway.
  assert all(LENGTHS[i] == LENGTHS[ids[num_rows - 1]] for i in ids[num_rows:])
