"""BERT's tokenizer: text -> basic tokens -> word pieces -> ids.

The names, arguments and results are those of Google's tokenization.py, so that
a vocabulary and a checkpoint made with it give the same ids here. What differs
is the way: whole texts pass through str.translate and regular expressions, and
FullTokenizer remembers the word pieces of the words it has seen.

TensorFlow is imported only when a vocabulary is read (paths such as gs:// go
through tf.io.gfile).
"""
import collections
import os
import re
import unicodedata
from typing import (Callable, Collection, Dict, Iterable, List, Mapping,
                    Optional, Tuple, TypeVar, Union)

Text = Union[str, bytes]
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

# The cache of FullTokenizer: 2^16 words of ordinary text are about 15 MB.
# Longer "words" are mostly whole sentences of a language without spaces, which
# do not come back.
_MAX_CACHED_WORDS = 1 << 16
_MAX_CACHED_CHARS = 64

# Released checkpoints, by the directory they are unpacked to, and how their
# vocabularies were made.
_LOWER_CASE_MODELS = frozenset([
    "uncased_L-24_H-1024_A-16", "uncased_L-12_H-768_A-12",
    "multilingual_L-12_H-768_A-12", "chinese_L-12_H-768_A-12"])
_CASED_MODELS = frozenset([
    "cased_L-12_H-768_A-12", "cased_L-24_H-1024_A-16",
    "multi_cased_L-12_H-768_A-12"])

# Blocks that the vocabularies hold one character at a time: CJK unified
# ideographs with extensions A to E, and the two compatibility blocks. Kana and
# Hangul are not among them; they are written with word-like units.
_CHINESE_BLOCKS = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F))


def validate_case_matches_checkpoint(do_lower_case: bool,
                                     init_checkpoint: Optional[str]) -> None:
  """Refuses a --do_lower_case that cannot fit a checkpoint known by its name.

  The name is that of the directory above `bert_model.ckpt`; others pass, as
  do None and "". ValueError when the checkpoint was made the other way.
  """
  if not init_checkpoint:
    return
  folder, file_name = os.path.split(init_checkpoint)
  if not file_name.startswith("bert_model.ckpt"):
    return
  model = os.path.basename(folder)
  if model in _LOWER_CASE_MODELS and not do_lower_case:
    kind, wanted = "lower-cased", True
  elif model in _CASED_MODELS and do_lower_case:
    kind, wanted = "cased", False
  else:
    return
  raise ValueError(
      "--do_lower_case=%s, but --init_checkpoint=%s is the %s model %s: pass "
      "--do_lower_case=%s, or rename the directory if it holds another model."
      % (bool(do_lower_case), init_checkpoint, kind, model, wanted))


def convert_to_unicode(text: Text) -> str:
  """Returns `text` as str; bytes are read as UTF-8, bad bytes dropped."""
  if isinstance(text, str):
    return text
  if isinstance(text, bytes):
    return text.decode("utf-8", "ignore")
  raise ValueError("expected str or bytes, got %s: %r" % (type(text), text))


def printable_text(text: Text) -> str:
  """Returns `text` as the str type that print and logging take."""
  return convert_to_unicode(text)


def load_vocab(vocab_file: str) -> "collections.OrderedDict[str, int]":
  r"""Reads a vocabulary: one entry a line, the line number from 0 is its id.

  Lines end at "\n" only (Google's Chinese vocabulary has U+2028 as an entry);
  white space around an entry is dropped. Where an entry comes twice, the later
  line counts.

  Args:
    vocab_file: path, anything that tf.io.gfile opens.

  Returns:
    entry -> id, in the order of the file.

  Raises:
    ValueError: the file is not UTF-8 text.
    tf.errors.OpError: the file cannot be read.
  """
  import tensorflow.compat.v1 as tf  # slow, and of no use to the rest
  with tf.io.gfile.GFile(vocab_file, "rb") as reader:
    content = reader.read()
  return parse_vocab(content, vocab_file)


def parse_vocab(content: bytes,
                name: str) -> "collections.OrderedDict[str, int]":
  """Reads the content of a vocabulary file, see `load_vocab`.

  Args:
    content: of the file.
    name: of the file, for the message.

  Raises:
    ValueError: the content is not UTF-8 text.
  """
  try:
    lines = content.decode("utf-8-sig").split("\n")
  except UnicodeDecodeError as error:
    raise ValueError(
        "vocabulary %s is not UTF-8 text: byte 0x%02x in line %d. Give the "
        "vocab.txt that came with the checkpoint."
        % (name, content[error.start],
           content.count(b"\n", 0, error.start) + 1)) from None
  if not lines[-1]:
    lines.pop()
  vocab: "collections.OrderedDict[str, int]" = collections.OrderedDict()
  for index, line in enumerate(lines):
    vocab[line.strip()] = index
  return vocab


def convert_by_vocab(vocab: Mapping[_Key, _Value],
                     items: Iterable[_Key]) -> List[_Value]:
  """Looks up each of `items` in `vocab`; a KeyError names what is missing."""
  try:
    return [vocab[item] for item in items]
  except KeyError as error:
    raise KeyError(
        "%r is not among the %d entries of the vocabulary: is this the "
        "vocab.txt that came with the checkpoint?"
        % (error.args[0], len(vocab))) from None


def convert_tokens_to_ids(vocab: Mapping[str, int],
                          tokens: Iterable[str]) -> List[int]:
  """Word pieces -> ids; `vocab` maps entry -> id. KeyError when unknown."""
  return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab: Mapping[int, str],
                          ids: Iterable[int]) -> List[str]:
  """Ids -> word pieces; `inv_vocab` maps id -> entry. KeyError if unknown."""
  return convert_by_vocab(inv_vocab, ids)


def whitespace_tokenize(text: str) -> List[str]:
  """Splits at runs of white space; text of white space only gives []."""
  return text.split()


def _is_whitespace(char: str) -> bool:
  r"""Space, \t, \n, \r and the space separators (Zs), such as U+00A0."""
  return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def _is_control(char: str) -> bool:
  r"""Control (Cc) and format (Cf) characters but for \t, \n and \r."""
  return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def _is_punctuation(char: str) -> bool:
  """All of ASCII that is neither letter, digit nor blank, and Unicode's P*.

  ASCII symbols such as "$" and "^" (S* in Unicode) count as well.
  """
  if "!" <= char <= "~":
    return not char.isalnum()
  return unicodedata.category(char).startswith("P")


def _is_chinese_char(code: int) -> bool:
  """True for a code point of the blocks that are split into characters."""
  return any(first <= code <= last for first, last in _CHINESE_BLOCKS)


class _CharTable(Dict[int, Optional[str]]):
  """A table for str.translate that works out each character once.

  `rule` takes a character and returns what replaces it, None to drop it.
  """

  def __init__(self, rule: Callable[[str], Optional[str]]):
    super().__init__()
    self._rule = rule

  def __missing__(self, code: int) -> Optional[str]:
    value = self._rule(chr(code))
    self[code] = value
    return value


def _clean_char(char: str) -> Optional[str]:
  if char in "\0\ufffd" or _is_control(char):
    return None
  if _is_whitespace(char):
    return " "
  return " %s " % char if _is_chinese_char(ord(char)) else char


def _split_char(char: str) -> str:
  return " %s " % char if _is_punctuation(char) else char


def _split_or_strip_char(char: str) -> Optional[str]:
  return None if unicodedata.category(char) == "Mn" else _split_char(char)


_CLEAN = _CharTable(_clean_char)
_SPLIT = _CharTable(_split_char)
_SPLIT_AND_STRIP_ACCENTS = _CharTable(_split_or_strip_char)

# A cleaned ASCII text holds nothing but letters, digits, blanks, punctuation.
_ASCII_TOKENS = re.compile(r"[A-Za-z0-9]+|[!-/:-@\[-`{-~]")

# str.split takes these for white space, BERT drops them: "a\x0bb" is one word.
_DROPPED_SPACES = re.compile("[\x0b\x0c\x1c-\x1f\x85]")


class BasicTokenizer:
  """Splits text at white space and punctuation; Chinese into characters."""

  def __init__(self, do_lower_case: bool = True):
    """Creates it.

    Args:
      do_lower_case: lower-case the text and strip its accents.
    """
    self.do_lower_case = do_lower_case

  def tokenize(self, text: Text) -> List[str]:
    """Returns the tokens of `text` (str, or bytes in UTF-8)."""
    text = convert_to_unicode(text)
    if text.isascii():
      if not text.isprintable():
        text = text.translate(_CLEAN)
      return _ASCII_TOKENS.findall(text.lower() if self.do_lower_case else text)
    text = text.translate(_CLEAN)
    # Words are not yet apart, but neither lower-casing (final sigma) nor
    # decomposition looks beyond the spaces, so it is as if they were.
    if self.do_lower_case:
      text = unicodedata.normalize("NFD", text.lower())
      return text.translate(_SPLIT_AND_STRIP_ACCENTS).split()
    return text.translate(_SPLIT).split()


class WordpieceTokenizer:
  """Cuts words into the longest pieces that the vocabulary has.

  "unaffable" -> "un", "##aff", "##able": from the left, always the longest
  entry that fits; pieces within a word carry "##" in the vocabulary.
  """

  def __init__(self, vocab: Collection[str], unk_token: str = "[UNK]",
               max_input_chars_per_word: int = 200):
    """Creates it.

    Args:
      vocab: the entries (a dict of entry -> id will do); not to be changed
        afterwards.
      unk_token: stands for a word that cannot be put together.
      max_input_chars_per_word: a longer word becomes `unk_token`.
    """
    self.vocab = vocab
    self.unk_token = unk_token
    self.max_input_chars_per_word = max_input_chars_per_word
    # No longer piece needs to be tried.
    self._longest = max(map(len, self.vocab), default=0)

  def tokenize(self, text: Text) -> List[str]:
    """Returns the pieces of `text`, words that white space separates.

    Text that did not pass BasicTokenizer keeps its punctuation and case.
    """
    vocab = self.vocab
    pieces: List[str] = []
    for word in convert_to_unicode(text).split():
      if len(word) > self.max_input_chars_per_word:
        pieces.append(self.unk_token)
      elif word in vocab:
        pieces.append(word)
      else:
        pieces.extend(self._cut(word))
    return pieces

  def _cut(self, word: str) -> List[str]:
    vocab = self.vocab
    pieces: List[str] = []
    rest, prefix_length = word, 0
    while len(rest) > prefix_length:
      end = min(len(rest), self._longest)
      while end > prefix_length and rest[:end] not in vocab:
        end -= 1
      if end <= prefix_length:
        return [self.unk_token]
      pieces.append(rest[:end])
      rest, prefix_length = "##" + rest[end:], 2
    return pieces


class FullTokenizer:
  """Text -> word pieces -> ids, with the vocabulary of a checkpoint.

  Attributes:
    vocab: entry -> id. inv_vocab: id -> entry.
    basic_tokenizer, wordpiece_tokenizer: the two steps; what is to be set on
      them must be set before the first text.
  """

  def __init__(self, vocab_file: str, do_lower_case: bool = True):
    """Creates it from the vocabulary file; see load_vocab for errors.

    Args:
      vocab_file: path of vocab.txt.
      do_lower_case: as the vocabulary was made: True for "uncased" ones.
    """
    self.vocab = load_vocab(vocab_file)
    self.inv_vocab = {index: entry for entry, index in self.vocab.items()}
    self.basic_tokenizer = BasicTokenizer(do_lower_case=do_lower_case)
    self.wordpiece_tokenizer = WordpieceTokenizer(vocab=self.vocab)
    self._known_words: Dict[str, Tuple[str, ...]] = {}

  def tokenize(self, text: Text) -> List[str]:
    """Returns the word pieces of `text` (str, or bytes in UTF-8)."""
    text = convert_to_unicode(text)
    if not text.isprintable():
      text = _DROPPED_SPACES.sub("", text)
    # All other steps work within a word, so its pieces can be remembered.
    find_known = self._known_words.get
    pieces: List[str] = []
    for word in text.split():
      pieces += find_known(word) or self._tokenize_word(word)
    return pieces

  def _tokenize_word(self, word: str) -> Tuple[str, ...]:
    tokens = self.basic_tokenizer.tokenize(word)
    pieces = tuple(self.wordpiece_tokenizer.tokenize(" ".join(tokens)))
    if len(word) <= _MAX_CACHED_CHARS:
      if len(self._known_words) >= _MAX_CACHED_WORDS:
        self._known_words.clear()
      self._known_words[word] = pieces
    return pieces

  def convert_tokens_to_ids(self, tokens: Iterable[str]) -> List[int]:
    """Word pieces -> ids. KeyError when one is not in the vocabulary."""
    return convert_by_vocab(self.vocab, tokens)

  def convert_ids_to_tokens(self, ids: Iterable[int]) -> List[str]:
    """Ids -> word pieces. KeyError when one is not in the vocabulary."""
    return convert_by_vocab(self.inv_vocab, ids)
