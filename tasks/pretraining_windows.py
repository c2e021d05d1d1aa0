"""One window of the corpus -> shuffled records.

The documents of the window are shuffled, random next sentences come from it,
and its instances are shuffled.
Only the ids are held in memory. What instances consist of (ranges of the ids,
masked positions) goes to a scratch file and is read in shuffled order, so that
memory does not depend on the number of instances.
"""
import array
import itertools
import os
import random
import struct
from typing import IO, Any, Callable, List, NamedTuple, Sequence, Tuple

import numpy as np

from tasks import pretraining_masking as masking
from tasks.pretraining_corpus import Vocabulary
from tasks.pretraining_pairs import (Documents, InstanceSettings, Pair,
                                     Sentences, draw_pairs)
from tasks.pretraining_records import encode_records, record_table
from tasks.pretraining_splitter import WindowFiles

# Rows that are turned into records at once: some megabytes.
_BATCH_ROWS = 2048

# Columns of the scratch file before the predictions.
_START_A, _LENGTH_A, _START_B, _LENGTH_B, _IS_RANDOM, _COUNT = range(6)
_NUM_COLUMNS = 6


class WindowTask(NamedTuple):
  """One window to make records of."""
  number: int
  files: List[WindowFiles]
  random_seed: int
  parts: List[str]  # a file to be written for each output file


class WindowResult(NamedTuple):
  """What a window has given."""
  parts: List[str]
  num_documents: int
  num_sentences: int
  num_instances: int
  num_random_next: int


def write_window(task: WindowTask, vocabulary: Vocabulary,
                 settings: InstanceSettings,
                 report: Callable[[int], None]) -> WindowResult:
  """Makes the records of a window; removes the window's files.

  The records are dealt to the parts in turn. A corpus of one window gives
  those of Google's program with the same seed, in the same order.

  Args:
    task: the window.
    vocabulary: the markers, kinds and words.
    settings: what instances look like.
    report: called now and then with the number of new instances; may raise.

  Returns:
    Counts. The parts are complete then.
  """
  lengths, ids = map(_take_arrays, zip(*task.files))
  rng = random.Random(task.random_seed if task.number == 0 else
                      "%d, window %d" % (task.random_seed, task.number))
  documents = _WindowDocuments(lengths, rng)
  with open(task.parts[0] + ".rows", "w+b") as rows_file:
    os.remove(rows_file.name)  # goes when it is closed, whatever happens
    rows = _Rows(rows_file, settings.max_predictions_per_seq)
    num_random_next = _draw_rows(
        rows, documents, vocabulary.kinds[ids].tobytes(), settings,
        len(vocabulary.words), rng, report)
    order = array.array("i", range(len(rows)))
    masking.shuffle(order, rng)
    _write_parts(rows, order, _Assembler(ids, vocabulary, settings), task.parts,
                 report)
  return WindowResult(task.parts, len(documents), documents.num_sentences,
                      len(rows), num_random_next)


def _take_arrays(paths: Sequence[str]) -> Any:
  """Reads arrays as one and removes the files."""
  arrays = [np.fromfile(path, np.int32) for path in paths]
  for path in paths:
    os.remove(path)
  return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


class _WindowDocuments(Documents):
  """The documents of a window, shuffled."""

  def __init__(self, lengths: Any, rng: random.Random):
    is_sentence = lengths > 0
    bounds = np.cumsum(lengths[is_sentence], dtype=np.int32)
    self._bounds = array.array("i", [0])
    self._bounds.frombytes(bounds.tobytes())
    self.num_sentences = len(bounds)
    # The sentences with as many document ends before them are a document.
    number = np.cumsum(~is_sentence)[is_sentence]
    firsts = np.flatnonzero(np.diff(number, prepend=-1))
    self._order = list(zip(firsts.tolist(),
                           firsts.tolist()[1:] + [len(bounds)]))
    masking.shuffle(self._order, rng)

  def __len__(self) -> int:
    return len(self._order)

  def sentences(self, index: int) -> Sentences:
    """Returns the sentences of a document; pieces count from the window's."""
    return Sentences(self._bounds, *self._order[index])


class _Rows:
  """Instances of fixed size in a scratch file: written in turn, read at will.

  Columns: _START_A .. _COUNT, then the pairs of position and replacement.
  """

  def __init__(self, stream: IO[bytes], max_predictions: int):
    self._stream = stream
    self._width = _NUM_COLUMNS + 2 * max_predictions
    self._format = struct.Struct("=%di" % self._width)
    self._paddings = [(0,) * (2 * (max_predictions - count))
                      for count in range(max_predictions + 1)]
    self._num_rows = 0

  def __len__(self) -> int:
    return self._num_rows

  def append(self, pair: Pair, predictions: List[Tuple[int, int]]) -> None:
    """Adds an instance."""
    count = len(predictions)
    self._stream.write(self._format.pack(
        pair.start_a, pair.end_a - pair.start_a, pair.start_b,
        pair.end_b - pair.start_b, pair.is_random_next, count,
        *itertools.chain.from_iterable(predictions), *self._paddings[count]))
    self._num_rows += 1

  def flush(self) -> None:
    """Must be called before rows are read."""
    self._stream.flush()

  def read(self, numbers: Any) -> Any:
    """Returns the rows of these numbers: [len(numbers), columns]."""
    size = self._format.size
    descriptor = self._stream.fileno()
    rows = b"".join([os.pread(descriptor, size, number * size)
                     for number in numbers.tolist()])
    return np.frombuffer(rows, np.int32).reshape(-1, self._width)


def _draw_rows(rows: _Rows, documents: _WindowDocuments, kinds: bytes,
               settings: InstanceSettings, num_words: int, rng: random.Random,
               report: Callable[[int], None]) -> int:
  """Draws all instances; returns how many have a random next sentence."""
  marker = bytes([masking.SPECIAL])
  counts = [masking.count_predictions(
      length, settings.masked_lm_prob, settings.max_predictions_per_seq)
            for length in range(settings.max_seq_length + 1)]
  num_random_next = num_reported = 0
  for _ in range(settings.dupe_factor):
    for index in range(len(documents)):
      for pair in draw_pairs(documents, index, settings, rng):
        sequence = marker.join((b"", kinds[pair.start_a:pair.end_a],
                                kinds[pair.start_b:pair.end_b], b""))
        rows.append(pair, masking.draw_predictions(
            sequence, counts[len(sequence)], num_words, rng))
        num_random_next += pair.is_random_next
        if len(rows) - num_reported >= _BATCH_ROWS:
          report(len(rows) - num_reported)
          num_reported = len(rows)
  rows.flush()
  report(len(rows) - num_reported)
  return num_random_next


class _Assembler:
  """Rows of the scratch file -> the features of records."""

  def __init__(self, ids: Any, vocabulary: Vocabulary,
               settings: InstanceSettings):
    self._ids = ids
    self._vocabulary = vocabulary
    self._max_predictions = settings.max_predictions_per_seq
    self._columns = np.arange(settings.max_seq_length)
    self.table = record_table(settings.max_seq_length,
                              settings.max_predictions_per_seq)

  def __call__(self, rows: Any) -> Any:
    """Returns {feature name: [rows, values]}."""
    places = np.arange(len(rows))[:, np.newaxis]
    input_ids, input_mask, segment_ids = self._fill_sequences(rows, places)
    positions = rows[:, _NUM_COLUMNS::2]
    replacements = rows[:, _NUM_COLUMNS + 1::2]
    is_used = np.arange(self._max_predictions) < rows[:, _COUNT, np.newaxis]
    labels = input_ids[places, positions]
    shown = self._vocabulary.words.take(replacements, mode="clip")
    shown[replacements == masking.USE_MASK] = self._vocabulary.mask
    is_changed = is_used & (replacements != masking.KEEP)
    input_ids[np.broadcast_to(places, positions.shape)[is_changed],
              positions[is_changed]] = shown[is_changed]
    return {"input_ids": input_ids, "input_mask": input_mask,
            "segment_ids": segment_ids, "masked_lm_positions": positions,
            "masked_lm_ids": labels * is_used, "masked_lm_weights": is_used,
            "next_sentence_labels": rows[:, _IS_RANDOM, np.newaxis]}

  def _fill_sequences(self, rows: Any, places: Any) -> Any:
    """Returns input_ids, input_mask, segment_ids: [CLS] a [SEP] b [SEP]."""
    columns = self._columns
    start_a, start_b = rows[:, [_START_A]], rows[:, [_START_B]]
    middle = rows[:, [_LENGTH_A]] + 1
    end = middle + rows[:, [_LENGTH_B]] + 1
    sources = np.where(columns < middle, start_a - 1, start_b - middle - 1)
    input_ids = self._ids.take(sources + columns, mode="clip")
    input_ids[:, 0] = self._vocabulary.cls
    input_ids[places, middle] = self._vocabulary.sep
    input_ids[places, end] = self._vocabulary.sep
    input_mask = columns <= end
    input_ids *= input_mask
    return input_ids, input_mask, input_mask & (columns > middle)


def _write_parts(rows: _Rows, order: Sequence[int], assemble: _Assembler,
                 parts: List[str], report: Callable[[int], None]) -> None:
  """Writes the rows in this order, dealt to the parts in turn."""
  writers = [open(part, "wb") for part in parts]
  try:
    for start in range(0, len(order), _BATCH_ROWS):
      report(0)
      numbers = np.array(order[start:start + _BATCH_ROWS])
      turns = np.arange(start, start + len(numbers)) % len(parts)
      by_part = np.argsort(turns, kind="stable")
      records, ends = encode_records(assemble(rows.read(numbers[by_part])),
                                     assemble.table)
      first = 0
      for part, count in enumerate(np.bincount(turns, minlength=len(parts))):
        last = first + int(count)
        if count:
          begin = ends[first - 1] if first else 0
          writers[part].write(records[begin:ends[last - 1]])
        first = last
  finally:
    for writer in writers:
      writer.close()
