"""SQuAD examples -> features (windows over the document) -> records.

Reading of files is in tasks/squad_examples.py, the way back from logits to
answers is not in here. Names and results are those of Google's run_squad.py.
"""
import itertools
import sys
from typing import (Any, Callable, Dict, Iterable, Iterator, List, NamedTuple,
                    Optional, Sequence, Tuple)

import tqdm

from multigpu.errors import UserError
from tasks.squad_examples import SquadExample, read_squad_examples
from tasks.squad_windows import (DocSpan, FeatureSettings, WindowPlan,
                                 check_is_max_context, check_settings,
                                 mark_max_context, plan_windows)

__all__ = [
    "FIRST_UNIQUE_ID", "FeatureSettings", "InputFeatures", "SquadExample",
    "check_settings", "convert_examples_to_features", "feature_to_record",
    "iterate_features", "read_squad_examples", "record_table"]

# Google's name, which people import.
_check_is_max_context = check_is_max_context

# As in google-research/bert.
FIRST_UNIQUE_ID = 1000000000

# About 15 MB; then the words are forgotten and learned anew.
_MAX_KNOWN_WORDS = 1 << 16


class InputFeatures:
  """One window of a document with the question: what the model sees.

  Attributes:
    unique_id: number of the feature, from FIRST_UNIQUE_ID.
    example_index, doc_span_index: the example, and the window within it.
    tokens: word pieces without padding.
    token_to_orig_map: index in tokens -> index in doc_tokens; document only.
    token_is_max_context: same keys -> whether, of all windows, this one shows
      the most context on the poorer side of the piece.
    input_ids, input_mask, segment_ids: max_seq_length ints each.
    start_position, end_position: of the answer in tokens, 0 when this window
      does not hold all of it; None outside training.
    is_impossible: of the example.
  """

  def __init__(self, unique_id: int, example_index: int, doc_span_index: int,
               tokens: List[str], token_to_orig_map: Dict[int, int],
               token_is_max_context: Dict[int, bool], input_ids: List[int],
               input_mask: List[int], segment_ids: List[int],
               start_position: Optional[int] = None,
               end_position: Optional[int] = None,
               is_impossible: Optional[bool] = None):
    self.unique_id = unique_id
    self.example_index = example_index
    self.doc_span_index = doc_span_index
    self.tokens = tokens
    self.token_to_orig_map = token_to_orig_map
    self.token_is_max_context = token_is_max_context
    self.input_ids = input_ids
    self.input_mask = input_mask
    self.segment_ids = segment_ids
    self.start_position = start_position
    self.end_position = end_position
    self.is_impossible = is_impossible


def iterate_features(examples: Iterable[SquadExample], tokenizer: Any,
                     settings: FeatureSettings, is_training: bool = False,
                     show_progress: bool = True) -> Iterator[InputFeatures]:
  """Makes the features one after the other.

  Memory does not grow with the number of examples: kept are the word pieces of
  the current paragraph and of up to _MAX_KNOWN_WORDS words. Each example gives
  at least one feature, also where its document is empty.

  Args:
    examples: the examples; consecutive ones that share `doc_tokens` (the same
      list object) have their document tokenised once.
    tokenizer: a FullTokenizer, or anything with its `tokenize` and
      `convert_tokens_to_ids`.
    settings: lengths of the windows.
    is_training: fill in the positions of the answers.
    show_progress: draw a progress bar on stderr.

  Returns:
    A generator of features, in the order of the examples and their windows.

  Raises:
    UserError: at once for wrong settings; while it runs when the vocabulary
      lacks a piece that is needed.
  """
  check_settings(settings)
  return _generate_features(examples, tokenizer, settings, is_training,
                            show_progress)


def convert_examples_to_features(
    examples: Iterable[SquadExample], tokenizer: Any, max_seq_length: int,
    doc_stride: int, max_query_length: int, is_training: bool,
    output_fn: Callable[[InputFeatures], Any]) -> None:
  """Calls `output_fn(feature)` for each feature; see iterate_features."""
  settings = FeatureSettings(max_seq_length, doc_stride, max_query_length)
  for feature in iterate_features(examples, tokenizer, settings, is_training):
    output_fn(feature)


class _Document(NamedTuple):
  """The word pieces of one paragraph."""
  words: List[str]  # the examples' doc_tokens
  pieces: List[str]
  ids: List[int]
  piece_to_word: List[int]
  word_to_piece: List[int]  # first piece of each word; their number at the end


class _Question(NamedTuple):
  """What all windows of one example have in common."""
  example_index: int
  example: SquadExample
  head: List[str]  # [CLS] question [SEP]
  head_ids: List[int]
  document: _Document
  answer: Optional[Tuple[int, int]]  # first, last piece; None: none to learn


def _generate_features(examples: Iterable[SquadExample], tokenizer: Any,
                       settings: FeatureSettings, is_training: bool,
                       show_progress: bool) -> Iterator[InputFeatures]:
  unique_id = FIRST_UNIQUE_ID
  document = None
  known = _WordPieces(tokenizer)
  with tqdm.tqdm(examples, desc="features", unit=" questions",
                 disable=not show_progress, file=sys.stderr,
                 # A log file gets a line now and then, a terminal a live bar.
                 mininterval=0.2 if sys.stderr.isatty() else 10) as progress:
    for example_index, example in enumerate(progress):
      if document is None or document.words is not example.doc_tokens:
        document = _tokenize_document(example.doc_tokens, known)
      question = _tokenize_question(example_index, example, document, tokenizer,
                                    settings.max_query_length, is_training)
      plan = plan_windows(len(document.pieces),
                          settings.max_seq_length - len(question.head) - 1,
                          settings.doc_stride)
      for span_index in range(len(plan.spans)):
        feature = _make_feature(unique_id, question, plan, span_index,
                                settings.max_seq_length)
        if is_training:
          _set_positions(feature, question, plan.spans[span_index])
        unique_id += 1
        yield feature


class _WordPieces(Dict[str, List[str]]):
  """Word -> its pieces, worked out once: most words of a text come again."""

  def __init__(self, tokenizer: Any):
    super().__init__()
    self.tokenizer = tokenizer

  def __missing__(self, word: str) -> List[str]:
    pieces = self[word] = self.tokenizer.tokenize(word)
    return pieces


def _tokenize_document(words: List[str], known: _WordPieces) -> _Document:
  if len(known) > _MAX_KNOWN_WORDS:
    known.clear()
  by_word = [known[word] for word in words]
  pieces = list(itertools.chain.from_iterable(by_word))
  piece_to_word = [index for index, word_pieces in enumerate(by_word)
                   for _ in word_pieces]
  word_to_piece = list(itertools.accumulate(map(len, by_word)))
  return _Document(words, pieces, _convert_to_ids(pieces, known.tokenizer),
                   piece_to_word, [0] + word_to_piece)


def _tokenize_question(example_index: int, example: SquadExample,
                       document: _Document, tokenizer: Any,
                       max_query_length: int, is_training: bool) -> _Question:
  query = tokenizer.tokenize(example.question_text)[:max_query_length]
  head = ["[CLS]"] + query + ["[SEP]"]
  answer = None
  if is_training and not example.is_impossible:
    answer = _find_answer_pieces(example, document, tokenizer)
  return _Question(example_index, example, head,
                   _convert_to_ids(head, tokenizer), document, answer)


def _convert_to_ids(pieces: List[str], tokenizer: Any) -> List[int]:
  try:
    return tokenizer.convert_tokens_to_ids(pieces)
  except KeyError as error:
    raise UserError(
        "--vocab_file does not fit: %s [CLS], [SEP] and [UNK] must be in it."
        % error.args[0]) from None


def _find_answer_pieces(example: SquadExample, document: _Document,
                        tokenizer: Any) -> Tuple[int, int]:
  """Returns first and last piece of the answer in the document."""
  assert example.start_position is not None  # as read for training
  assert example.end_position is not None
  first = document.word_to_piece[example.start_position]
  last = document.word_to_piece[example.end_position + 1] - 1
  return _improve_answer_span(document.pieces, first, last, tokenizer,
                              example.orig_answer_text)


def _improve_answer_span(doc_tokens: Sequence[str], input_start: int,
                         input_end: int, tokenizer: Any,
                         orig_answer_text: Optional[str]) -> Tuple[int, int]:
  """Narrows an answer from whole words to the word pieces it consists of.

  The words say "(1895-1943)." where the answer is "1895": its pieces
  are looked for among those of the words; the leftmost place counts.

  Args:
    doc_tokens: the document's word pieces.
    input_start, input_end: first and last piece of the answer's words.
    tokenizer: has `tokenize`.
    orig_answer_text: the answer.

  Returns:
    First and last piece of the answer; the input where it is not found (the
    answer "Japan" in "Japanese").
  """
  answer = list(tokenizer.tokenize(orig_answer_text))
  if answer:
    for start in range(input_start, input_end - len(answer) + 2):
      if list(doc_tokens[start:start + len(answer)]) == answer:
        return start, start + len(answer) - 1
  return input_start, input_end


def _make_feature(unique_id: int, question: _Question, plan: WindowPlan,
                  span_index: int, max_seq_length: int) -> InputFeatures:
  """Builds the feature of one window, without the answer's positions."""
  document, head = question.document, question.head
  span = plan.spans[span_index]
  end = span.start + span.length
  tokens = head + document.pieces[span.start:end] + ["[SEP]"]
  word_of_position = dict(enumerate(document.piece_to_word[span.start:end],
                                    len(head)))
  padding = [0] * (max_seq_length - len(tokens))
  return InputFeatures(
      unique_id=unique_id,
      example_index=question.example_index,
      doc_span_index=span_index,
      tokens=tokens,
      token_to_orig_map=word_of_position,
      token_is_max_context=mark_max_context(plan, span_index, word_of_position),
      input_ids=(question.head_ids + document.ids[span.start:end]
                 + question.head_ids[-1:] + padding),
      input_mask=[1] * len(tokens) + padding,
      segment_ids=[0] * len(head) + [1] * (span.length + 1) + padding,
      is_impossible=question.example.is_impossible)


def _set_positions(feature: InputFeatures, question: _Question,
                   span: DocSpan) -> None:
  """Sets the answer's place in the window; [CLS] when it is not all there."""
  feature.start_position = feature.end_position = 0
  if question.answer is None:
    return
  first, last = question.answer
  if span.start <= first and last < span.start + span.length:
    shift = len(question.head) - span.start
    feature.start_position = first + shift
    feature.end_position = last + shift


def record_table(max_seq_length: int, is_training: bool
                 ) -> Dict[str, Tuple[Tuple[int, ...], str]]:
  """Returns {feature name: (shape, dtype)} of a record, as Google has it."""
  sequence, scalar = ((max_seq_length,), "int64"), ((), "int64")
  table: Dict[str, Tuple[Tuple[int, ...], str]] = {
      "unique_ids": scalar, "input_ids": sequence, "input_mask": sequence,
      "segment_ids": sequence}
  if is_training:
    table.update(start_positions=scalar, end_positions=scalar,
                 is_impossible=scalar)
  return table


def feature_to_record(feature: InputFeatures,
                      is_training: bool) -> Dict[str, List[int]]:
  """Returns a record's values in the layout of record_table.

  Raises:
    ValueError: `is_training`, but the feature was not made for training.
  """
  record = {"unique_ids": [feature.unique_id], "input_ids": feature.input_ids,
            "input_mask": feature.input_mask,
            "segment_ids": feature.segment_ids}
  if is_training:
    if feature.start_position is None or feature.end_position is None:
      raise ValueError("feature %d has no answer positions: make it with "
                       "is_training=True" % feature.unique_id)
    record["start_positions"] = [feature.start_position]
    record["end_positions"] = [feature.end_position]
    record["is_impossible"] = [int(bool(feature.is_impossible))]
  return record
