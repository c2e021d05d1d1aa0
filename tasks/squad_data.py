"""SQuAD examples -> features (windows over the document) -> records.

Reading of files is in tasks/squad_examples.py, the way back from logits to
answers is not in here. Names and results are those of Google's run_squad.py.
"""
import sys
from typing import (Any, Callable, Dict, Iterable, Iterator, List, Optional,
                    Tuple)

import tqdm

from multigpu.sequences import SequenceLength
from tasks.squad_examples import SquadExample, read_squad_examples
from tasks.squad_pieces import (Question, WordPieces, improve_answer_span,
                                place_answer, tokenize_document,
                                tokenize_question)
from tasks.squad_windows import (FeatureSettings, WindowPlan,
                                 check_is_max_context, check_settings,
                                 mark_max_context, plan_windows)

__all__ = [
    "FIRST_UNIQUE_ID", "FeatureSettings", "InputFeatures", "SquadExample",
    "check_settings", "convert_examples_to_features", "feature_to_record",
    "iterate_features", "read_squad_examples", "record_table"]

# Google's names, which people import.
_check_is_max_context = check_is_max_context
_improve_answer_span = improve_answer_span

# As in google-research/bert.
FIRST_UNIQUE_ID = 1000000000


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
  the current paragraph and of a limited number of words. Each example gives
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


def _generate_features(examples: Iterable[SquadExample], tokenizer: Any,
                       settings: FeatureSettings, is_training: bool,
                       show_progress: bool) -> Iterator[InputFeatures]:
  unique_id = FIRST_UNIQUE_ID
  document = None
  known = WordPieces(tokenizer)
  with tqdm.tqdm(examples, desc="features", unit=" questions",
                 disable=not show_progress, file=sys.stderr,
                 # A log file gets a line now and then, a terminal a live bar.
                 mininterval=0.2 if sys.stderr.isatty() else 10) as progress:
    for example_index, example in enumerate(progress):
      if document is None or document.words is not example.doc_tokens:
        document = tokenize_document(example.doc_tokens, known)
      question = tokenize_question(example_index, example, document, tokenizer,
                                   settings.max_query_length, is_training)
      plan = plan_windows(len(document.pieces),
                          settings.max_seq_length - len(question.head) - 1,
                          settings.doc_stride)
      for span_index in range(len(plan.spans)):
        feature = _make_feature(unique_id, question, plan, span_index,
                                settings.max_seq_length)
        if is_training:
          feature.start_position, feature.end_position = place_answer(
              question, plan.spans[span_index])
        unique_id += 1
        yield feature


def _make_feature(unique_id: int, question: Question, plan: WindowPlan,
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


def record_table(max_seq_length: int, is_training: bool
                 ) -> Dict[str, Tuple[Tuple[int, ...], str]]:
  """Returns {feature name: (shape, dtype)} of a record, as Google has it."""
  sequence = ((SequenceLength(max_seq_length),), "int64")
  scalar: Tuple[Tuple[int, ...], str] = ((), "int64")
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
