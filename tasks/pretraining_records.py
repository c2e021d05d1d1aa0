"""Many rows at once -> the bytes of a TFRecord file, with NumPy.

A record is a serialized tf.train.Example in TFRecord framing. Building the
messages one by one in Python costs more than all the rest of making
pre-training data, and importing TensorFlow for it more still; here a batch of
rows is one matrix of bytes. The table of features is the one that
multigpu.records reads with.

Wire format, outermost first (field number, type; all are length-delimited):

  Example       1 Features
  Features      1 map entry, repeated
  map entry     1 key (string), 2 Feature
  Feature       2 FloatList or 3 Int64List
  FloatList     1 packed float32;  Int64List  1 packed varints

Record: length (uint64), its masked CRC-32C, data, masked CRC-32C of the data.
"""
import functools
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

import numpy as np

from multigpu.examples import RecordTable
from multigpu.sequences import SequenceLength

_FIELD_1, _FIELD_2, _FIELD_3 = 0x0A, 0x12, 0x1A  # number << 3 | 2
_HEADER_BYTES = 12
_FOOTER_BYTES = 4
_CASTAGNOLI = 0x82F63B78  # polynomial of CRC-32C, bits reversed
_CRC_MASK = 0xA282EAD8


def record_table(max_seq_length: int,
                 max_predictions_per_seq: int) -> RecordTable:
  """Returns {feature name: (shape, dtype)} of a record, as Google has it."""
  sequence = ((SequenceLength(max_seq_length),), "int64")
  predictions = ((max_predictions_per_seq,), "int64")
  return {
      "input_ids": sequence, "input_mask": sequence, "segment_ids": sequence,
      "masked_lm_positions": predictions, "masked_lm_ids": predictions,
      "masked_lm_weights": ((max_predictions_per_seq,), "float32"),
      "next_sentence_labels": ((1,), "int64")}


# Feature -> flag that says how many values it has.
LENGTH_FLAGS = {
    "input_ids": "max_seq_length", "input_mask": "max_seq_length",
    "segment_ids": "max_seq_length",
    "masked_lm_positions": "max_predictions_per_seq",
    "masked_lm_ids": "max_predictions_per_seq",
    "masked_lm_weights": "max_predictions_per_seq"}


def value_limits(max_seq_length: int, vocab_size: int,
                 type_vocab_size: int) -> Dict[str, int]:
  """Returns {feature name: number that its values stay below} for a model."""
  return {"input_ids": vocab_size, "input_mask": 2,
          "segment_ids": type_vocab_size, "masked_lm_positions": max_seq_length,
          "masked_lm_ids": vocab_size, "next_sentence_labels": 2}


class _Message(NamedTuple):
  """Bytes of all rows, in parts that stand one after the other.

  A part is two matrices [rows, width]: bytes, and which of them are there.
  Numbers take one byte or more; each gets as many cells as the longest.
  """
  parts: List[Tuple[Any, Any]]
  lengths: Any  # [rows]: bytes in each row


def encode_records(columns: Mapping[str, Any], table: RecordTable
                   ) -> Tuple[Any, Any]:
  """Encodes a batch of rows as records.

  Args:
    columns: {feature name: [rows, values]}; integers from 0 to 2^31 - 1.
    table: {feature name: (shape, dtype)}, dtype "int64" or "float32".

  Returns:
    The records one after the other (uint8), and the end of each in it.
  """
  examples = _encode_examples(columns, table)
  lengths = examples.lengths
  cells, valid = zip(*examples.parts)
  data = np.concatenate(cells, axis=1)[np.concatenate(valid, axis=1)]
  headers = np.zeros([len(lengths), _HEADER_BYTES], np.uint8)
  headers[:, :8] = _as_bytes(lengths.astype("<u8"))
  headers[:, 8:] = _as_bytes(_masked_crc(
      headers[:, :8].ravel(), np.full(len(lengths), 8)))
  footers = _as_bytes(_masked_crc(data, lengths))

  ends = np.cumsum(lengths + _HEADER_BYTES + _FOOTER_BYTES)
  starts = np.concatenate([[0], ends[:-1]])
  output = np.empty(ends[-1], np.uint8)
  is_data = np.ones(ends[-1], bool)
  for offsets, part in ((starts, headers), (ends - _FOOTER_BYTES, footers)):
    places = offsets[:, np.newaxis] + np.arange(part.shape[1])
    output[places] = part
    is_data[places] = False
  output[is_data] = data
  return output, ends


def _encode_examples(columns: Mapping[str, Any], table: RecordTable
                     ) -> _Message:
  entries = [_encode_entry(name, columns[name], dtype)
             for name, (_, dtype) in table.items()]
  return _wrap(_FIELD_1, _join(entries))


def _encode_entry(name: str, values: Any, dtype: str) -> _Message:
  """Encodes one entry of the map: {name: values}."""
  if dtype == "int64":
    feature = _wrap(_FIELD_3, _wrap(_FIELD_1, _encode_varints(values)))
  else:
    numbers = _all_valid(_as_bytes(values.astype("<f4")))
    feature = _wrap(_FIELD_2, _wrap(_FIELD_1, numbers))
  key = np.frombuffer(name.encode("utf-8"), np.uint8)
  keys = _all_valid(np.broadcast_to(key, [len(values), len(key)]))
  return _wrap(_FIELD_1, _join([_wrap(_FIELD_1, keys),
                                _wrap(_FIELD_2, feature)]))


def _wrap(tag: int, content: _Message) -> _Message:
  """Puts tag and length before the content."""
  lengths = content.lengths[:, np.newaxis]
  tags = _all_valid(np.full(lengths.shape, tag, np.uint8))
  return _join([tags, _encode_varints(lengths), content])


def _encode_varints(values: Any) -> _Message:
  """Encodes [rows, n] numbers: seven bits a byte, the lowest first."""
  largest = int(values.max())
  if largest < 128:
    return _all_valid(values.astype(np.uint8))
  num_cells = -(-largest.bit_length() // 7)
  values = values.astype(np.uint32)
  cells = np.empty(values.shape + (num_cells,), np.uint8)
  valid = np.ones(cells.shape, bool)
  for i in range(num_cells):
    if i:
      values = values >> np.uint32(7)
      valid[..., i] = values > 0
    # The high bit says that another byte follows.
    cells[..., i] = values | (values > 127) * np.uint32(128)
  shape = len(values), -1
  valid = valid.reshape(shape)
  return _Message([(cells.reshape(shape), valid)], valid.sum(axis=1))


def _all_valid(cells: Any) -> _Message:
  return _Message([(cells, np.ones(cells.shape, bool))],
                  np.full(len(cells), cells.shape[1]))


def _join(messages: List[_Message]) -> _Message:
  return _Message([part for message in messages for part in message.parts],
                  np.sum([message.lengths for message in messages], axis=0))


def _as_bytes(values: Any) -> Any:
  """Views [rows] or [rows, n] numbers as [rows, bytes]."""
  return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)


@functools.lru_cache(maxsize=None)
def _crc_tables() -> Tuple[Any, Any]:
  """What two bytes become after the CRC has gone on by two and four bytes."""
  crc = np.arange(1 << 16, dtype=np.uint32)
  for _ in range(16):
    crc = (crc >> 1) ^ np.where(crc & 1, np.uint32(_CASTAGNOLI), np.uint32(0))
  return crc, crc[crc & 0xFFFF] ^ (crc >> 16)


def _masked_crc(data: Any, lengths: Any) -> Any:
  """Returns the masked CRC-32C of each row (all of at least four bytes).

  Args:
    data: the bytes of all rows, one row after the other.
    lengths: bytes of each row.
  """
  two, four = _crc_tables()
  # The rows stand side by side with their ends below each other. The zeros
  # before a row leave the state 0 as it is; a start with all bits set, as
  # CRC-32C has it, is the same as a start with 0 and four inverted bytes.
  width = -(-int(lengths.max()) // 4) * 4
  matrix = np.zeros([len(lengths), width], np.uint8)
  starts = width - lengths[:, np.newaxis]
  matrix[np.arange(width) >= starts] = data
  first = starts + np.arange(4)
  rows = np.arange(len(lengths))[:, np.newaxis]
  matrix[rows, first] ^= 0xFF
  crc = np.zeros(len(lengths), "<u4")
  for column in np.ascontiguousarray(matrix.view("<u4").T):
    low_high = (crc ^ column).view("<u2")
    # "wrap" is the fastest check of indexes that cannot be wrong.
    crc = four.take(low_high[0::2], mode="wrap")
    crc ^= two.take(low_high[1::2], mode="wrap")
  crc ^= np.uint32(0xFFFFFFFF)
  return ((crc >> 15 | crc << 17) + np.uint32(_CRC_MASK)).astype("<u4")
