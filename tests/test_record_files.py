"""multigpu/record_files.py: which file and record are wrong, and how."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from multigpu import record_files
from multigpu import records
from multigpu import runs
from multigpu import sequences
from multigpu.errors import UserError

TABLE = {"input_mask": ((sequences.SequenceLength(4),), "int64"),
         "weights": ((2,), "float32"), "label": ((), "int64")}
EXPECTED = record_files.Expected(
    TABLE, {"label": 3}, {"input_mask": "max_seq_length"})
ROW = {"input_mask": [1, 1, 0, 0], "weights": [0.5, 1], "label": [2]}


def write(path, *rows, table=None):
  with records.RecordWriter(str(path), table or TABLE) as writer:
    for row in rows:
      writer.write(row)
  return str(path)


def longer(name, length, dtype="int64"):
  return dict(TABLE, **{name: ((length,), dtype)})


def test_good_files(tmp_path, caplog):
  path = write(tmp_path / "rows", ROW, ROW)
  record_files.check_files([path], EXPECTED, strict=True)
  assert record_files.count_records([path, path]) == 4
  # TensorFlow's own deprecation notes are none of ours.
  assert not [record for record in caplog.records
              if record.name == record_files.__name__]


@pytest.mark.parametrize("row, table, wanted", [
    (dict(ROW, input_mask=[1] * 6), longer("input_mask", 6),
     "feature 'input_mask' has 6 values, but --max_seq_length=4: pass "
     "--max_seq_length=6"),
    (dict(ROW, weights=[1] * 3), longer("weights", 3, "float32"),
     "feature 'weights' has 3 values, wanted 2"),
    (dict(ROW, weights=[1, 2]), longer("weights", 2),
     "feature 'weights' is int64_list, wanted float_list"),
    (dict(ROW, label=[3]), None,
     "feature 'label' holds 3, wanted 0 to 2: .*another vocabulary"),
    (dict(ROW, label=[-1]), None, "feature 'label' holds -1"),
    (ROW, {"label": TABLE["label"]}, "no feature 'input_mask', there is only "
     "label: is it a file of this task"),
])
def test_first_record(tmp_path, row, table, wanted):
  good = write(tmp_path / "good", ROW)
  path = write(tmp_path / "rows", row, table=table)
  with pytest.raises(UserError, match=wanted) as caught:
    record_files.check_files([good, path], EXPECTED)
  assert str(caught.value).startswith(path + ", record 1: ")


@pytest.mark.parametrize("content, wanted", [
    (b"text\n" * 20, "record 1: damaged"),
    (b"\x1f\x8b\x08\0" * 9, "record 1: damaged .*compressed"),
    (b"", "no records in it"), (b"\0", "record 1: damaged")])
def test_other_files(tmp_path, content, wanted):
  (tmp_path / "rows").write_bytes(content)
  with pytest.raises(UserError, match="rows.*" + wanted):
    record_files.check_files([str(tmp_path / "rows")], EXPECTED)


def test_no_example(tmp_path):
  with tf.io.TFRecordWriter(str(tmp_path / "rows")) as writer:
    writer.write(b"\xff\xff")
  with pytest.raises(UserError, match="record 1: not a tf.train.Example"):
    record_files.check_files([str(tmp_path / "rows")], EXPECTED)


@pytest.mark.parametrize("name", ["none", ""])
def test_no_file(tmp_path, name):
  with pytest.raises(UserError, match="cannot read "):
    record_files.check_files([str(tmp_path / name)], EXPECTED)


def test_empty_files_are_named(tmp_path, caplog):
  paths = [write(tmp_path / "full", ROW), write(tmp_path / "empty")]
  record_files.check_files(paths, EXPECTED)
  (record,) = [record for record in caplog.records
               if record.name == record_files.__name__]
  assert "read 2 files, kept 1, skipped 1 without records: %s" % paths[1] in (
      record.getMessage())
  with pytest.raises(UserError, match="skipped 1 without records.*--strict"):
    record_files.check_files(paths, EXPECTED, strict=True)
  with pytest.raises(UserError, match="no records in it"):
    record_files.check_files(paths[1:], EXPECTED)


def damage(path):
  """Changes a byte of the third record."""
  with open(path, "rb") as reader:
    content = bytearray(reader.read())
  content[len(content) // 4 * 2 + 30] ^= 1
  with open(path, "wb") as writer:
    writer.write(content)


@pytest.mark.parametrize("change", ["flip", "cut", "cut in the header"])
def test_damage_within_a_file(tmp_path, change):
  path = write(tmp_path / "rows", *[ROW] * 4)
  if change == "flip":
    damage(path)
  else:
    with open(path, "rb+") as stream:
      stream.truncate(len(stream.read()) // 4 * 2
                      + (20 if change == "cut" else 5))
  record_files.check_files([path], EXPECTED)
  for count in (records.count_rows, record_files.count_records):
    with pytest.raises(UserError, match="rows, record 3: damaged .*incomplete"):
      count(path)


@pytest.mark.parametrize("change", ["damage", "other"])
def test_damage_met_later_is_explained(tmp_path, caplog, change):
  """What the input pipeline says, with the name of the file and the record."""
  good = write(tmp_path / "good", ROW, ROW)
  if change == "damage":
    path = write(tmp_path / "bad", *[ROW] * 4)
    damage(path)
    wanted = "bad, record 3: damaged"
  else:
    with tf.io.TFRecordWriter(str(tmp_path / "bad")) as writer:
      writer.write(records.serialize(ROW, TABLE))
      writer.write(records.serialize(dict(ROW, weights=[1.] * 3), TABLE))
    path = str(tmp_path / "bad")
    wanted = "bad, record 2: feature 'weights' has 3 values, wanted 2"
  rows = runs.Rows([good, path], TABLE)
  with tf.Graph().as_default(), tf.Session() as session:
    batch = tf.data.make_one_shot_iterator(records.training_dataset(
        rows.paths, TABLE, 2, records.TrainingOrder())).get_next()
    with pytest.raises(UserError, match=wanted):
      with runs._explained(rows):
        for _ in range(9):
          session.run(batch)


def test_other_errors_stay_as_they_are(tmp_path, caplog):
  rows = runs.Rows(write(tmp_path / "rows", ROW), TABLE)
  for error in (tf.errors.ResourceExhaustedError(None, None, "memory"),
                tf.errors.InvalidArgumentError(None, None, "another"),
                tf.errors.InvalidArgumentError(None, None, "Key: x")):
    with pytest.raises(type(error)) as caught:
      with runs._explained(rows):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("num_rows", [1, 3])
@pytest.mark.parametrize("num_replicas", [2, 4])
def test_fewer_rows_than_replicas_take(tmp_path, num_rows, num_replicas):
  """One round of full batches; every row comes, copies only fill it up."""
  path = write(tmp_path / "rows", *(dict(ROW, label=[i])
                                    for i in range(num_rows)))
  for make in (records.inference_dataset, records.sorted_inference_dataset):
    with tf.Graph().as_default(), tf.Session() as session:
      batch = tf.data.make_one_shot_iterator(
          make(path, TABLE, 2, num_rows, num_replicas)).get_next()["label"]
      found = [session.run(batch) for _ in range(num_replicas)]
      with pytest.raises(tf.errors.OutOfRangeError):
        session.run(batch)
    assert [len(part) for part in found] == [2] * num_replicas
    assert set(np.concatenate(found)) == set(range(num_rows))


def test_training_batches_of_more_rows_than_there_are(tmp_path):
  path = write(tmp_path / "rows", ROW)
  with tf.Graph().as_default(), tf.Session() as session:
    batch = tf.data.make_one_shot_iterator(records.training_dataset(
        path, TABLE, 5, records.TrainingOrder(skip_rows=7))).get_next()
    assert [len(session.run(batch)["label"]) for _ in range(3)] == [5, 5, 5]
