"""Rows -> serialized tf.train.Example messages, without TensorFlow.

Processes that only make rows need not import TensorFlow for it, and this is
faster than filling a message number by number. Whole batches of NumPy arrays
are encoded in tasks/pretraining_records.py, where the wire format is drawn up.
"""
import array
import sys
from typing import Any, Dict, Mapping, Sequence, Tuple

RecordTable = Dict[str, Tuple[Tuple[int, ...], str]]

# Field number << 3 | 2 (length-delimited).
_FIELD_1, _FIELD_2, _FIELD_3 = b"\x0a", b"\x12", b"\x1a"


def encode_row(values: Mapping[str, Sequence[Any]],
               table: RecordTable) -> bytes:
  """Encodes one row: {feature name: its flat values}."""
  return wrap_entries(encode_entries(values, table))


def encode_entries(values: Mapping[str, Sequence[Any]],
                   table: RecordTable) -> bytes:
  """Encodes features of a row; parts made so may be joined, then wrapped.

  Args:
    values: {feature name: its flat values}.
    table: {feature name: (shape, dtype)}, dtype "int64" or "float32"; these
      features are written, in this order.
  """
  return b"".join(
      encode_packed(name, encode_integers(values[name])) if dtype == "int64"
      else _encode_entry(name, _FIELD_2, _pack_floats(values[name]))
      for name, (_, dtype) in table.items())


def encode_packed(name: str, packed: bytes) -> bytes:
  """Encodes a feature of what `encode_integers` has returned.

  The encodings of parts of a list of integers may be joined before.
  """
  return _encode_entry(name, _FIELD_3, packed)


def _encode_entry(name: str, kind: bytes, packed: bytes) -> bytes:
  feature = _wrap(kind, _wrap(_FIELD_1, packed))
  return _wrap(_FIELD_1, _wrap(_FIELD_1, name.encode("utf-8"))
               + _wrap(_FIELD_2, feature))


def wrap_entries(entries: bytes) -> bytes:
  """Makes a serialized tf.train.Example of all entries of a row."""
  return _wrap(_FIELD_1, entries)


def _wrap(tag: bytes, content: bytes) -> bytes:
  return tag + _VARINTS[len(content)] + content


class _Varints(Dict[int, bytes]):
  """Number -> seven bits a byte, the lowest first; the high bit: more follow.

  Negative numbers are taken modulo 2^64.
  """

  def __missing__(self, number: int) -> bytes:
    rest, encoded = int(number) % (1 << 64), bytearray()
    while rest > 127:
      encoded.append(rest & 127 | 128)
      rest >>= 7
    encoded.append(rest)
    # Ids of word pieces come back; other numbers mostly do not.
    if 0 <= number < 1 << 16:
      self[number] = bytes(encoded)
    return bytes(encoded)


_VARINTS = _Varints()

# Encodes one int64 value.
encode_integer = _VARINTS.__getitem__


def encode_integers(values: Sequence[int]) -> bytes:
  """Encodes int64 values one after the other."""
  if not isinstance(values, list):
    values = list(values)  # bytes() of an array is its memory
  try:
    packed = bytes(values)
    if packed.isascii():  # numbers below 128 are their own encoding
      return packed
  except ValueError:
    pass
  return b"".join(map(encode_integer, values))


def _pack_floats(values: Sequence[float]) -> bytes:
  numbers = array.array("f", values)
  if sys.byteorder != "little":
    numbers.byteswap()
  return numbers.tobytes()
