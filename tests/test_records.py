"""Record files, and which replica sees which rows."""
import collections

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from multigpu import devices as devices_lib
from multigpu import records
from multigpu.errors import UserError

TABLE = {"id": ((), "int64"), "x": ((2,), "float32")}


@pytest.fixture
def path(tmp_path):
  """A file of 11 rows."""
  name = str(tmp_path / "rows.tf_record")
  with records.RecordWriter(name, TABLE) as writer:
    for i in range(11):
      writer.write({"id": [i], "x": [i, i / 2]})
  return name


def rounds(make_dataset, num_replicas, batch_size, count):
  """Ids of each round, one list a replica."""
  devices = devices_lib.set_up(
      devices_lib.DeviceSettings(num_replicas, "cpu"))
  with tf.Graph().as_default(), devices.strategy.scope():
    iterator = devices.strategy.make_input_fn_iterator(
        lambda _: make_dataset(batch_size))
    ids = devices.strategy.experimental_local_results(
        iterator.get_next()["id"])
    with tf.Session(config=devices.session_config) as session:
      session.run(iterator.initialize())
      return [[list(part) for part in session.run(ids)] for _ in range(count)]


def training(path, seed=3, skip_rows=0):
  return lambda batch_size: records.training_dataset(
      path, TABLE, batch_size, records.TrainingOrder(seed, skip_rows))


def flat(found):
  return [sum(parts, []) for parts in found]


@pytest.mark.parametrize("num_replicas", [2, 4])
def test_global_batches_do_not_depend_on_the_replicas(path, num_replicas):
  one = flat(rounds(training(path), 1, 8, 6))
  many = flat(rounds(training(path), num_replicas, 8 // num_replicas, 6))
  assert many == one


def test_case_65_every_row_once_a_pass_and_never_twice_in_a_round(path):
  found = rounds(training(path), 2, 2, 11)
  rows = sum(flat(found), [])
  # 11 rounds of 2 x 2 rows are four passes over 11 rows.
  assert len(rows) == 44
  assert collections.Counter(rows) == dict.fromkeys(range(11), 4)
  for start in range(0, 44, 11):
    assert sorted(rows[start:start + 11]) == list(range(11))
  assert rows[:11] != rows[11:22]


def test_seed_and_start_of_the_stream(path):
  rows = sum(flat(rounds(training(path), 1, 4, 6)), [])
  later = sum(flat(rounds(training(path, skip_rows=8), 1, 4, 4)), [])
  assert later == rows[8:]
  other = sum(flat(rounds(training(path, seed=4), 1, 4, 6)), [])
  assert other != rows


def test_files_read_in_parallel_keep_the_order_of_one_reader(
    tmp_path, monkeypatch):
  paths = []
  for i, length in enumerate([3, 0, 7, 1, 5, 4, 2, 6, 7, 1, 3]):
    paths.append(str(tmp_path / ("%d.tf_record" % i)))
    with records.RecordWriter(paths[-1], TABLE) as writer:
      for j in range(length):
        writer.write({"id": [10 * i + j], "x": [i, j]})
  monkeypatch.setattr(records, "SHUFFLE_BUFFER", 1)  # leaves the order alone
  found = sum(flat(rounds(training(paths), 1, 1, 39)), [])
  # What one reader gives on both runtimes, eight files open at a time.
  assert found == [
      30, 50, 0, 100, 90, 40, 20, 60, 51, 1, 101, 41, 21, 70, 61, 52, 2, 102,
      80, 42, 22, 71, 53, 81, 43, 23, 72, 82, 44, 24, 73, 83, 25, 74, 84, 26,
      75, 85, 86]


@pytest.mark.parametrize("num_hosts, num_local", [(2, 1), (2, 2), (4, 1)])
@pytest.mark.parametrize("skip_rows", [0, 16])
def test_hosts_share_the_batches_of_one(path, num_hosts, num_local, skip_rows):
  num_replicas = num_hosts * num_local
  size = 8 // num_replicas
  one = rounds(training(path, skip_rows=skip_rows), num_replicas, size, 6)
  shares = [
      rounds(lambda batch_size, host=host: records.training_dataset(
          path, TABLE, batch_size, records.TrainingOrder(
              3, skip_rows, share=records.Share(
                  num_replicas, host * num_local, num_local))),
             num_local, size, 6)
      for host in range(num_hosts)]
  assert [sum(parts, []) for parts in zip(*shares)] == one


@pytest.mark.parametrize("num_replicas, batch_size", [
    (1, 4), (2, 4), (3, 2), (4, 8)])
def test_inference_rows_are_in_order_and_full(path, num_replicas, batch_size):
  per_round = num_replicas * batch_size
  count = -(-11 // per_round)
  found = rounds(
      lambda size: records.inference_dataset(path, TABLE, size, 11,
                                             num_replicas),
      num_replicas, batch_size, count)
  rows = sum(flat(found), [])
  assert rows == list(range(11)) + [0] * (count * per_round - 11)


def test_a_file_appears_whole_or_not_at_all(tmp_path):
  name = tmp_path / "rows"
  with pytest.raises(RuntimeError):
    with records.RecordWriter(str(name), TABLE) as writer:
      writer.write({"id": [1], "x": [1, 2]})
      raise RuntimeError
  assert list(tmp_path.iterdir()) == []


def test_types_and_count(path):
  assert records.count_rows(path) == 11
  with tf.Graph().as_default(), tf.Session() as session:
    rows = tf.data.make_one_shot_iterator(
        records.inference_dataset(path, TABLE, 11, 11)).get_next()
    values = session.run(rows)
  assert values["id"].dtype == np.int32 and values["x"].dtype == np.float32
  np.testing.assert_array_equal(values["x"][3], [3, 1.5])


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path):
  resource = pytest.importorskip("resource")
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
  try:
    with pytest.raises(UserError, match="cannot write .*/rows .*free there"):
      with records.RecordWriter(str(tmp_path / "rows"), TABLE) as writer:
        for i in range(100000):
          writer.write({"id": [i], "x": [1, 2]})
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
  assert list(tmp_path.iterdir()) == []
  with pytest.raises(UserError, match="absent/rows"):
    records.RecordWriter(str(tmp_path / "absent" / "rows"), TABLE)
