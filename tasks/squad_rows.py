"""SQuAD examples -> rows of a record file, the short way.

The rows are those of the features of tasks/squad_data.py. But a feature has
much that a row has not (its words, the best window of each piece): here the
bytes of a document's ids are made once, and each window is a slice of them.
"""
from typing import Any, List, Optional

from multigpu.examples import encode_integer, encode_integers, encode_packed
from tasks.feature_rows import RowEncoder
from tasks.squad_examples import SquadExample
from tasks.squad_pieces import (Document, Question, WordPieces, place_answer,
                                tokenize_document, tokenize_question)
from tasks.squad_windows import (DocSpan, FeatureSettings, check_settings,
                                 plan_windows)


class SquadRowEncoder(RowEncoder):
  """Makes the rows of questions, all but their `unique_ids`.

  The number of a feature depends on all questions before it.
  """

  def __init__(self, tokenizer: Any, settings: FeatureSettings,
               is_training: bool):
    """Creates it.

    Args:
      tokenizer: a FullTokenizer.
      settings: lengths of the windows.
      is_training: rows have the places of the answers.

    Raises:
      UserError: wrong settings.
    """
    check_settings(settings)
    self._known = WordPieces(tokenizer)
    self._settings = settings
    self._is_training = is_training

  def encode(self, examples: List[SquadExample]) -> List[bytes]:
    """Returns the entries of the rows, in the order of record_table."""
    rows: List[bytes] = []
    document: Optional[Document] = None
    for example in examples:
      if document is None or document.words is not example.doc_tokens:
        document = tokenize_document(example.doc_tokens, self._known)
        encoded_ids = list(map(encode_integer, document.ids))
      question = tokenize_question(
          0, example, document, self._known.tokenizer,
          self._settings.max_query_length, self._is_training)
      plan = plan_windows(len(document.pieces),
                          self._settings.max_seq_length
                          - len(question.head) - 1, self._settings.doc_stride)
      for span in plan.spans:
        rows.append(self._encode_window(question, span, encoded_ids))
    return rows

  def pack(self, examples: List[SquadExample]) -> List[Any]:
    """Returns tuples with few strings: pickling each word takes far longer."""
    packed, words = [], None
    for example in examples:
      document: Any = None  # that of the example before
      if words is not example.doc_tokens:
        words = example.doc_tokens
        document = " ".join(words)
        if document.split(" ") != words:  # made by others, with spaces in words
          document = words
      packed.append((document, example.question_text, example.orig_answer_text,
                     example.start_position, example.end_position,
                     example.is_impossible))
    return packed

  def unpack(self, packed: List[Any]) -> List[SquadExample]:
    """Returns the examples, without their ids."""
    examples, words = [], []
    for document, question_text, *answer in packed:
      if document is not None:
        words = document.split(" ") if isinstance(document, str) else document
      examples.append(SquadExample("", question_text, words, *answer))
    return examples

  def _encode_window(self, question: Question, span: DocSpan,
                     encoded_ids: List[bytes]) -> bytes:
    num_head, num_rest = len(question.head), span.length + 1
    padding = bytes(self._settings.max_seq_length - num_head - num_rest)
    separator = encode_integer(question.head_ids[-1])
    # The encoding of 0 is the byte 0, that of 1 the byte 1.
    entries = (
        encode_packed("input_ids", b"".join(
            [encode_integers(question.head_ids),
             *encoded_ids[span.start:span.start + span.length], separator,
             padding]))
        + encode_packed("input_mask", b"\1" * (num_head + num_rest) + padding)
        + encode_packed("segment_ids",
                        bytes(num_head) + b"\1" * num_rest + padding))
    if not self._is_training:
      return entries
    start, end = place_answer(question, span)
    return (entries
            + encode_packed("start_positions", encode_integer(start))
            + encode_packed("end_positions", encode_integer(end))
            + encode_packed("is_impossible", encode_integer(
                int(bool(question.example.is_impossible)))))
