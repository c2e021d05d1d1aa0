"""Classification examples -> features -> records.

Reading of files is in tasks/classifier_processors.py and
tasks/classifier_tsv.py. Names and results are those of run_classifier.py of
google-research/bert; regression and several labels per example are added.
"""
import logging
import math
import sys
from typing import (Any, Dict, Iterable, Iterator, List, NamedTuple, Optional,
                    Sequence, Tuple, Union)

import tqdm

from multigpu.errors import UserError
from multigpu.examples import encode_entries
from multigpu.sequences import SequenceLength
from tasks.feature_rows import RowEncoder

_LOGGER = logging.getLogger(__name__)

# What a label is: one of some classes, a number, or any of some classes.
CLASSES, REGRESSION, MULTI_LABEL = "classes", "regression", "multi_label"
LABEL_SEPARATOR = ","  # between the labels of one example

# [CLS] a [SEP] b [SEP]
_NUM_MARKERS = 3
NUM_LOGGED_EXAMPLES = 5
_NAMED_LABELS = 20


class InputExample:
  """One text or pair of texts.

  Attributes:
    guid: name of the example, for messages.
    text_a: the text, not tokenised.
    text_b: the second text of a pair; None or "" for a single text.
    label: its label as text; with several labels they are separated by a comma
      and "" means none of them. A regression's may also be a number.
  """

  def __init__(self, guid: Any, text_a: str, text_b: Optional[str] = None,
               label: Optional[Union[str, float]] = None):
    self.guid = guid
    self.text_a = text_a
    self.text_b = text_b
    self.label = label


class PaddingInputExample:
  """Fills a last batch where its size is fixed; counts as no example."""


class InputFeatures:
  """What the model sees of one example.

  Attributes:
    input_ids, input_mask, segment_ids: max_seq_length ints each.
    label_id: class index; a float (regression); a list of 0.0 and 1.0, one for
      each label (several labels per example).
    is_real_example: False for padding.
  """

  def __init__(self, input_ids: List[int], input_mask: List[int],
               segment_ids: List[int], label_id: Any,
               is_real_example: bool = True):
    self.input_ids = input_ids
    self.input_mask = input_mask
    self.segment_ids = segment_ids
    self.label_id = label_id
    self.is_real_example = is_real_example


class LabelSet(NamedTuple):
  """The labels of a task; their order is that of the model's outputs.

  `names` is empty for a regression.
  """
  kind: str = CLASSES  # CLASSES, REGRESSION or MULTI_LABEL
  names: Tuple[str, ...] = ()

  @property
  def num_outputs(self) -> int:
    """Width of the classifier's last layer."""
    return 1 if self.kind == REGRESSION else len(self.names)


# Where Google's functions take `label_list`, both may be given.
Labels = Union[LabelSet, Sequence[str]]


def as_label_set(labels: Labels) -> LabelSet:
  """Returns `labels`; a plain list of names means one class per example."""
  if isinstance(labels, LabelSet):
    return labels
  return LabelSet(CLASSES, tuple(labels))


class LabelEncoder:
  """Turns the label of an example into what the loss works with."""

  def __init__(self, labels: Labels):
    self.labels = as_label_set(labels)
    self._indexes = {name: index
                     for index, name in enumerate(self.labels.names)}

  @property
  def empty(self) -> Any:
    """The label_id of padding."""
    if self.labels.kind == MULTI_LABEL:
      return [0.0] * len(self.labels.names)
    return 0.0 if self.labels.kind == REGRESSION else 0

  def encode(self, label: Any) -> Any:
    """Returns the label_id (see InputFeatures).

    Raises:
      ValueError: no such label; the message says what is wrong and wanted, the
        caller adds where it stands.
    """
    if self.labels.kind == REGRESSION:
      return parse_number(label)
    if self.labels.kind == CLASSES:
      return self._index(label)
    if label is None:
      raise self._unknown(label)
    values = self.empty
    for name in split_labels(label):
      values[self._index(name)] = 1.0
    return values

  def _index(self, name: Any) -> int:
    try:
      return self._indexes[name]
    except (KeyError, TypeError):
      raise self._unknown(name) from None

  def _unknown(self, name: Any) -> ValueError:
    names = self.labels.names
    known = ", ".join(map(repr, names[:_NAMED_LABELS]))
    if len(names) > _NAMED_LABELS:
      known += " and %d more" % (len(names) - _NAMED_LABELS)
    return ValueError("unknown label %r, wanted one of: %s" % (name, known))


def parse_number(label: Any) -> float:
  """Reads the label of a regression; ValueError when it is no number."""
  try:
    number = float(label)
  except (TypeError, ValueError):
    number = math.nan
  if not math.isfinite(number):
    raise ValueError("label %r, wanted a number" % (label,))
  return number


def split_labels(label: str) -> List[str]:
  """Splits "a, b" into its labels; "" gives none."""
  names = (name.strip() for name in label.split(LABEL_SEPARATOR))
  return [name for name in names if name]


def iterate_features(examples: Iterable[Any], labels: Labels,
                     max_seq_length: int, tokenizer: Any,
                     show_progress: bool = True) -> Iterator[InputFeatures]:
  """Makes the features one after the other, in the order of the examples.

  Args:
    examples: InputExamples and PaddingInputExamples.
    labels: a LabelSet, or the list of class names.
    max_seq_length: in word pieces, with the markers.
    tokenizer: a FullTokenizer, or anything with its `tokenize` and
      `convert_tokens_to_ids`.
    show_progress: draw a progress bar on stderr.

  Raises:
    UserError: at once for a length without room for text; while it runs for an
      unknown label or a vocabulary without the markers.
  """
  _check_length(max_seq_length)
  return _generate_features(examples, LabelEncoder(labels), max_seq_length,
                            tokenizer, show_progress)


def _generate_features(examples: Iterable[Any], encoder: LabelEncoder,
                       max_seq_length: int, tokenizer: Any,
                       show_progress: bool) -> Iterator[InputFeatures]:
  with tqdm.tqdm(examples, desc="features", unit=" examples",
                 disable=not show_progress, file=sys.stderr,
                 # A log file gets a line now and then, a terminal a live bar.
                 mininterval=0.2 if sys.stderr.isatty() else 10) as progress:
    for index, example in enumerate(progress):
      yield _make_feature(index, example, encoder, max_seq_length, tokenizer)


def convert_single_example(ex_index: int, example: Any, label_list: Labels,
                           max_seq_length: int,
                           tokenizer: Any) -> InputFeatures:
  """Makes the feature of one example; see iterate_features.

  Args:
    ex_index: its number; the first five are logged.
    example: InputExample or PaddingInputExample.
    label_list: class names, or a LabelSet.
    max_seq_length: in word pieces, with the markers.
    tokenizer: a FullTokenizer.
  """
  _check_length(max_seq_length)
  return _make_feature(ex_index, example, LabelEncoder(label_list),
                       max_seq_length, tokenizer)


def convert_examples_to_features(
    examples: Iterable[Any], label_list: Labels, max_seq_length: int,
    tokenizer: Any) -> List[InputFeatures]:
  """Makes all features, as a list; see iterate_features."""
  return list(iterate_features(examples, label_list, max_seq_length, tokenizer))


def _check_length(max_seq_length: int) -> None:
  if max_seq_length < _NUM_MARKERS:
    raise UserError(
        "--max_seq_length=%d leaves no room for text beside the %d markers "
        "[CLS], [SEP], [SEP]: pass more (usual: 128)."
        % (max_seq_length, _NUM_MARKERS))


def _make_feature(ex_index: int, example: Any, encoder: LabelEncoder,
                  max_seq_length: int, tokenizer: Any) -> InputFeatures:
  if isinstance(example, PaddingInputExample):
    zeros = [0] * max_seq_length
    return InputFeatures(zeros, list(zeros), list(zeros), encoder.empty, False)
  try:
    label_id = encoder.encode(example.label)
  except ValueError as error:
    raise UserError("example %s: %s" % (example.guid, error)) from None
  tokens, segment_ids = _join_texts(example, max_seq_length, tokenizer)
  if ex_index < NUM_LOGGED_EXAMPLES:
    _LOGGER.info("example %s: %s, label %s (id %s)", example.guid,
                 " ".join(tokens), example.label, label_id)
  padding = [0] * (max_seq_length - len(tokens))
  return InputFeatures(
      input_ids=_convert_to_ids(tokens, tokenizer) + padding,
      input_mask=[1] * len(tokens) + padding,
      segment_ids=segment_ids + padding,
      label_id=label_id)


def _join_texts(example: InputExample, max_seq_length: int,
                tokenizer: Any) -> Tuple[List[str], List[int]]:
  """Returns word pieces with the markers, and the segment of each."""
  tokens_a = tokenizer.tokenize(example.text_a)
  tokens_b = tokenizer.tokenize(example.text_b) if example.text_b else []
  if tokens_b:
    _truncate_seq_pair(tokens_a, tokens_b, max_seq_length - _NUM_MARKERS)
  else:  # one [SEP] less
    del tokens_a[max_seq_length - _NUM_MARKERS + 1:]
  tokens = ["[CLS]"] + tokens_a + ["[SEP]"]
  segment_ids = [0] * len(tokens)
  if tokens_b:
    tokens += tokens_b + ["[SEP]"]
    segment_ids += [1] * (len(tokens_b) + 1)
  return tokens, segment_ids


def _truncate_seq_pair(tokens_a: List[str], tokens_b: List[str],
                       max_length: int) -> None:
  """Cuts both lists in place, together to `max_length` tokens.

  The longer one loses its last tokens until both are equally long; from then
  on they lose one in turn, b first. 10 and 3 tokens to 8: 5 and 3 remain; to 5:
  3 and 2. No list gives up a token while it holds less than its half.
  """
  half = (max_length + 1) // 2
  length_a = min(len(tokens_a), max(half, max_length - len(tokens_b)))
  del tokens_a[length_a:]
  del tokens_b[max_length - length_a:]


def _convert_to_ids(tokens: List[str], tokenizer: Any) -> List[int]:
  try:
    return tokenizer.convert_tokens_to_ids(tokens)
  except KeyError as error:
    raise UserError(
        "--vocab_file does not fit: %s [CLS], [SEP] and [UNK] must be in it."
        % error.args[0]) from None


def record_table(max_seq_length: int, labels: Labels
                 ) -> Dict[str, Tuple[Tuple[int, ...], str]]:
  """Returns {feature name: (shape, dtype)} of a record.

  With classes the records are those that google-research/bert writes. A
  regression's `label_ids` is a float, that of several labels a vector of
  floats.
  """
  labels = as_label_set(labels)
  sequence = ((SequenceLength(max_seq_length),), "int64")
  scalar: Tuple[Tuple[int, ...], str] = ((), "int64")
  label_entries: Dict[str, Tuple[Tuple[int, ...], str]] = {
      CLASSES: scalar, REGRESSION: ((), "float32"),
      MULTI_LABEL: ((len(labels.names),), "float32")}
  return {"input_ids": sequence, "input_mask": sequence,
          "segment_ids": sequence, "label_ids": label_entries[labels.kind],
          "is_real_example": scalar}


def feature_to_record(feature: InputFeatures) -> Dict[str, List[Any]]:
  """Returns a record's values in the layout of record_table."""
  label_id = feature.label_id
  return {"input_ids": feature.input_ids, "input_mask": feature.input_mask,
          "segment_ids": feature.segment_ids,
          "label_ids": label_id if isinstance(label_id, list) else [label_id],
          "is_real_example": [int(feature.is_real_example)]}


class ClassifierRowEncoder(RowEncoder):
  """Makes the rows of examples; logs none of them."""

  def __init__(self, labels: Labels, max_seq_length: int, tokenizer: Any):
    _check_length(max_seq_length)
    self._encoder = LabelEncoder(labels)
    self._max_seq_length = max_seq_length
    self._tokenizer = tokenizer
    self._table = record_table(max_seq_length, labels)

  def encode(self, examples: List[Any]) -> List[bytes]:
    """Returns the entries of the examples' rows."""
    return [encode_entries(feature_to_record(_make_feature(
        NUM_LOGGED_EXAMPLES, example, self._encoder, self._max_seq_length,
        self._tokenizer)), self._table) for example in examples]

  def pack(self, examples: List[Any]) -> List[Any]:
    """Returns tuples: pickling an object takes longer."""
    return [None if isinstance(example, PaddingInputExample) else
            (example.guid, example.text_a, example.text_b, example.label)
            for example in examples]

  def unpack(self, packed: List[Any]) -> List[Any]:
    """Returns the examples."""
    return [PaddingInputExample() if values is None else InputExample(*values)
            for values in packed]
