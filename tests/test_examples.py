"""The encoder of rows against TensorFlow's own messages."""
import numpy as np
import tensorflow.compat.v1 as tf

from multigpu import examples

TABLE = {"ids": ((5,), "int64"), "größe": ((2,), "float32"),
         "none": ((0,), "int64"), "mask": ((2,), "int64")}
VALUES = {"ids": [0, 127, 128, 30521, 1 << 40], "größe": [1.5, -2e30],
          "none": [], "mask": [1, 0]}


def expect(values):
  message = tf.train.Example()
  for name, (_, dtype) in TABLE.items():
    feature = message.features.feature[name]
    if dtype == "int64":
      feature.int64_list.value.extend(values[name])
    else:
      feature.float_list.value.extend(values[name])
  return message


def test_rows_are_what_tensorflow_reads():
  for ids in ([0, 127, 128, 30521, 1 << 40], [-1, -(1 << 63), 5, 255, 256],
              [(1 << 63) - 1, 1000000000, 16383, 16384, 2]):
    values = dict(VALUES, ids=ids)
    row = examples.encode_row(values, TABLE)
    assert tf.train.Example.FromString(row) == expect(values)


def test_arrays_and_lists_give_the_same_row():
  arrays = {name: np.array(values, TABLE[name][1])
            for name, values in VALUES.items()}
  assert (examples.encode_row(arrays, TABLE)
          == examples.encode_row(VALUES, TABLE))


def test_parts_can_be_joined():
  first = {"ids": TABLE["ids"]}
  others = {name: entry for name, entry in TABLE.items() if name != "ids"}
  ids = b"".join(map(examples.encode_integer, VALUES["ids"]))
  assert examples.encode_packed("ids", ids) == examples.encode_entries(
      VALUES, first)
  assert examples.wrap_entries(
      examples.encode_packed("ids", ids)
      + examples.encode_entries(VALUES, others)) == examples.encode_row(
          VALUES, TABLE)
