"""From the word pieces of an answer back to a part of the document.

Lives here: Google's `get_final_text`, and the same for the many
spans that are tried in one document. Not here: which spans these are
(`tasks/squad_answers.py`).
"""
import bisect
import itertools
import logging
from typing import Iterable, List, Sequence

import tokenization

_LOGGER = logging.getLogger(__name__)


def join_pieces(pieces: Sequence[str]) -> str:
  """["em", "##bed", "it"] -> "embed it"."""
  text = " ".join(pieces).replace(" ##", "").replace("##", "")
  return " ".join(text.split())


def get_final_text(pred_text: str, orig_text: str, do_lower_case: bool,
                   verbose_logging: bool = False) -> str:
  """Cuts out of the document what the word pieces of an answer stand for.

  Worked example: "steve smith" in "Steve Smith's" is found in the basic tokens
  "steve smith ' s"; both texts have the same letters when blanks do not count,
  so letters 0 to 9 are the answer: "Steve Smith".

  Args:
    pred_text: joined word pieces, lower case where `do_lower_case`.
    orig_text: the words of the document that hold them.
    do_lower_case: as the pieces were made.
    verbose_logging: log each text that cannot be found.

  Returns:
    A part of `orig_text`; all of it where the tokens do not hold `pred_text`
    or have another number of letters (an accent of its own, say, was dropped).
  """
  tokens = tokenization.BasicTokenizer(do_lower_case).tokenize(orig_text)
  basic_text = " ".join(tokens)
  begin = basic_text.find(pred_text)
  positions = [position for position, character in enumerate(orig_text)
               if character != " "]
  is_aligned = len(positions) == len(basic_text) - basic_text.count(" ")
  # A blank at either end has no place in the original text.
  if (begin < 0 or not is_aligned or not pred_text or
      " " in (pred_text[0], pred_text[-1])):
    if verbose_logging:
      _LOGGER.info("cannot find %r in %r: the whole text is the answer",
                pred_text, orig_text)
    return orig_text
  first = begin - basic_text.count(" ", 0, begin)
  last = first + len(pred_text) - pred_text.count(" ") - 1
  return orig_text[positions[first]:positions[last] + 1]


def _tokenize_word(word: str, do_lower_case: bool) -> Sequence[str]:
  """Basic tokens of a word; most words need no tokenizer to know them."""
  if word.isalnum() and word.isascii():
    return (word.lower() if do_lower_case else word,)
  return tokenization.BasicTokenizer(do_lower_case).tokenize(word)


class Document:
  """`get_final_text` for many spans of one document, tokenized once.

  BERT's basic tokens of a text are those of its words, one word after the
  other. So each span is a slice of the tokenized document, and counts of
  letters (all that is not a blank) at word limits tell where a letter of the
  tokens is in the document. A test compares both ways on random texts.
  """

  def __init__(self, words: Sequence[str], do_lower_case: bool,
               verbose_logging: bool = False):
    """Tokenizes the document.

    Args:
      words: `doc_tokens` of an example.
      do_lower_case: as the word pieces were made.
      verbose_logging: see get_final_text.
    """
    self.words = words
    self._options = (do_lower_case, verbose_logging)
    self._text = " ".join(words)
    tokens = [_tokenize_word(word, do_lower_case) for word in words]
    # One blank behind every token.
    self._basic_text = "".join(
        token + " " for word_tokens in tokens for token in word_tokens)
    # Before word i: letters, letters of its tokens, start of its tokens.
    self._letters = _running_sums(map(len, words))
    token_letters = [sum(map(len, word_tokens)) for word_tokens in tokens]
    self._token_letters = _running_sums(token_letters)
    self._token_starts = _running_sums(
        count + len(word_tokens)
        for count, word_tokens in zip(token_letters, tokens))
    # Words come from a split at blanks, unless an example was made by hand.
    has_blanks = self._text.count(" ") != max(len(words) - 1, 0)
    self._is_slow = has_blanks or verbose_logging

  def find_text(self, pred_text: str, first: int, last: int) -> str:
    """get_final_text(pred_text, " ".join(words[first:last + 1]), ...).

    Args:
      pred_text: joined word pieces, without blanks at the ends.
      first, last: the words that hold them.
    """
    if self._is_slow:
      return get_final_text(
          pred_text, " ".join(self.words[first:last + 1]), *self._options)
    letters, token_letters = self._letters, self._token_letters
    low = self._token_starts[first]
    begin = self._basic_text.find(pred_text, low, self._token_starts[last + 1])
    if (begin < 0 or not pred_text or
        letters[last + 1] - letters[first] !=
        token_letters[last + 1] - token_letters[first]):
      return self._text[letters[first] + first:letters[last + 1] + last]
    # Letters of the document before the first and the last one of the answer.
    start = (letters[first] + begin - low -
             self._basic_text.count(" ", low, begin))
    end = start + len(pred_text) - pred_text.count(" ") - 1
    # Letter n, if it is in word i, is character n + i: i blanks are before it.
    return self._text[start + bisect.bisect_right(letters, start) - 1:
                      end + bisect.bisect_right(letters, end)]


def _running_sums(numbers: Iterable[int]) -> List[int]:
  """[3, 1, 2] -> [0, 3, 4, 6]."""
  return [0] + list(itertools.accumulate(numbers))
