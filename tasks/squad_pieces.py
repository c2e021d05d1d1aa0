"""Word pieces of SQuAD documents and questions, before they become windows."""
import itertools
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from multigpu.errors import UserError
from tasks.squad_examples import SquadExample
from tasks.squad_windows import DocSpan

# About 15 MB; then the words are forgotten and learned anew.
_MAX_KNOWN_WORDS = 1 << 16


class Document(NamedTuple):
  """The word pieces of one paragraph."""
  words: List[str]  # the examples' doc_tokens
  pieces: List[str]
  ids: List[int]
  piece_to_word: List[int]
  word_to_piece: List[int]  # first piece of each word; their number at the end


class Question(NamedTuple):
  """What all windows of one example have in common."""
  example_index: int
  example: SquadExample
  head: List[str]  # [CLS] question [SEP]
  head_ids: List[int]
  document: Document
  answer: Optional[Tuple[int, int]]  # first, last piece; None: none to learn


class WordPieces(Dict[str, List[str]]):
  """Word -> its pieces, worked out once: most words of a text come again."""

  def __init__(self, tokenizer: Any):
    super().__init__()
    self.tokenizer = tokenizer

  def __missing__(self, word: str) -> List[str]:
    pieces = self[word] = self.tokenizer.tokenize(word)
    return pieces


def tokenize_document(words: List[str], known: WordPieces) -> Document:
  """Makes the pieces of the words of a document."""
  if len(known) > _MAX_KNOWN_WORDS:
    known.clear()
  by_word = [known[word] for word in words]
  pieces = list(itertools.chain.from_iterable(by_word))
  piece_to_word = [index for index, word_pieces in enumerate(by_word)
                   for _ in word_pieces]
  word_to_piece = list(itertools.accumulate(map(len, by_word)))
  return Document(words, pieces, _convert_to_ids(pieces, known.tokenizer),
                   piece_to_word, [0] + word_to_piece)


def tokenize_question(example_index: int, example: SquadExample,
                      document: Document, tokenizer: Any,
                      max_query_length: int, is_training: bool) -> Question:
  """Makes the pieces of a question; finds its answer, in training."""
  query = tokenizer.tokenize(example.question_text)[:max_query_length]
  head = ["[CLS]"] + query + ["[SEP]"]
  answer = None
  if is_training and not example.is_impossible:
    answer = _find_answer_pieces(example, document, tokenizer)
  return Question(example_index, example, head,
                   _convert_to_ids(head, tokenizer), document, answer)


def _convert_to_ids(pieces: List[str], tokenizer: Any) -> List[int]:
  try:
    return tokenizer.convert_tokens_to_ids(pieces)
  except KeyError as error:
    raise UserError(
        "--vocab_file does not fit: %s [CLS], [SEP] and [UNK] must be in it."
        % error.args[0]) from None


def _find_answer_pieces(example: SquadExample, document: Document,
                        tokenizer: Any) -> Optional[Tuple[int, int]]:
  """Returns first and last piece of the answer in the document, if any."""
  assert example.start_position is not None  # as read for training
  assert example.end_position is not None
  first = document.word_to_piece[example.start_position]
  last = document.word_to_piece[example.end_position + 1] - 1
  if last < first:  # words of characters that BERT drops
    return None
  return improve_answer_span(document.pieces, first, last, tokenizer,
                             example.orig_answer_text)


def improve_answer_span(doc_tokens: Sequence[str], input_start: int,
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


def place_answer(question: Question, span: DocSpan) -> Tuple[int, int]:
  """Returns the answer's place in a window; [CLS] when it is not all there."""
  if question.answer is None:
    return 0, 0
  first, last = question.answer
  if span.start <= first and last < span.start + span.length:
    shift = len(question.head) - span.start
    return first + shift, last + shift
  return 0, 0
