"""Text files -> blocks of lines -> sentences of ids.

One sentence a line, a blank line between documents. A file does not end a
document, as in Google's program. Nothing in here holds more than a block.
"""
import itertools
from typing import (Any, Dict, Iterator, List, Mapping, NamedTuple, Optional,
                    Sequence, Tuple)

import numpy as np

from multigpu.errors import UserError
from tasks import pretraining_files
from tasks.pretraining_masking import INNER, SPECIAL, WORD
from tokenization import BasicTokenizer, WordpieceTokenizer, parse_vocab

# Text that a worker tokenizes at a time.
BLOCK_BYTES = 1 << 17

# As in tokenization.FullTokenizer.
_MAX_CACHED_WORDS = 1 << 16
_MAX_CACHED_CHARS = 64


class Block(NamedTuple):
  """Some whole lines of a file."""
  path: str
  first_line: int  # counts from 1
  content: bytes


class CorpusReader:
  """Reads files block by block.

  Attributes:
    open_ended: files so far whose last document goes on in the next file,
      because no blank line ends it.
  """

  def __init__(self, paths: Sequence[str], block_bytes: Optional[int] = None):
    self._paths = paths
    self._block_bytes = block_bytes or BLOCK_BYTES
    self.open_ended: List[str] = []

  def __iter__(self) -> Iterator[Block]:
    """Yields the blocks; UserError for a file that cannot be read."""
    for number, path in enumerate(self._paths, 1):
      last_line = b""
      for block in self._read(path):
        yield block
        text = block.content
        last_line = text[text.rfind(b"\n", 0, -1) + 1:]
      if last_line.strip() and number < len(self._paths):
        self.open_ended.append(path)

  def _read(self, path: str) -> Iterator[Block]:
    first_line = 1
    with pretraining_files.open_file(path, "rb", "input_file") as reader:
      while True:
        content = reader.read(self._block_bytes)
        if not content:
          return
        content += reader.readline()
        yield Block(path, first_line, content)
        first_line += content.count(b"\n")


def decode_lines(block: Block) -> List[str]:
  """Returns the lines of a block, without white space around them.

  Raises:
    UserError: a byte is not UTF-8.
  """
  try:
    text = block.content.decode("utf-8")
  except UnicodeDecodeError as error:
    line = block.first_line + block.content.count(b"\n", 0, error.start)
    raise UserError(
        "--input_file: %s, line %d: byte 0x%02x is not UTF-8 text: convert the "
        "file (iconv -t UTF-8) or mend the line."
        % (block.path, line, block.content[error.start])) from None
  lines = text.split("\n")
  if not lines[-1]:
    lines.pop()  # what follows the last line's end
  return list(map(str.strip, lines))


def read_documents(paths: Sequence[str], tokenizer: Any
                   ) -> List[List[List[str]]]:
  """Reads all documents as lists of sentences, sentences as word pieces."""
  documents: List[List[List[str]]] = [[]]
  for line in itertools.chain.from_iterable(
      map(decode_lines, CorpusReader(paths))):
    if not line:
      documents.append([])
    pieces = tokenizer.tokenize(line)
    if pieces:
      documents[-1].append(pieces)
  return [document for document in documents if document]


class Vocabulary:
  """What the making of instances needs to know about the vocabulary.

  Attributes:
    ids: entry -> id.
    cls, sep, mask: ids of the markers.
    kinds: kind (see tasks/pretraining_masking.py) by id, uint8.
    words: the ids that random words are drawn from, in the file's order.
  """

  def __init__(self, ids: Mapping[str, int], do_whole_word_mask: bool = False):
    """Creates it; UserError when a marker is missing."""
    missing = [marker for marker in ("[CLS]", "[SEP]", "[MASK]", "[UNK]")
               if marker not in ids]
    if missing:
      raise UserError(
          "--vocab_file: no %s among its %d entries: give the vocab.txt of a "
          "BERT model." % (", ".join(missing), len(ids)))
    self.ids = ids
    self.cls, self.sep, self.mask = ids["[CLS]"], ids["[SEP]"], ids["[MASK]"]
    self.words = np.array(list(ids.values()), np.int32)
    self.kinds = np.full(self.words.max() + 1, WORD, np.uint8)
    if do_whole_word_mask:
      self.kinds[[index for entry, index in ids.items()
                  if entry.startswith("##")]] = INNER
    self.kinds[[self.cls, self.sep]] = SPECIAL


def load_vocabulary(path: str) -> Dict[str, int]:
  r"""Reads a vocabulary as tokenization.load_vocab does.

  That one imports TensorFlow (see tasks/pretraining_files.py).

  Raises:
    UserError: the file cannot be read or is not UTF-8 text.
  """
  with pretraining_files.open_file(path, "rb", "vocab_file") as reader:
    content = reader.read()
  try:
    return parse_vocab(content, path)
  except ValueError as error:
    raise UserError("--vocab_file: %s" % error) from None


class IdTokenizer:
  """Text -> ids of its word pieces, as FullTokenizer has them.

  The ids of words are remembered, so that most of a text is one look-up a
  word, and no lists of pieces are made on the way.
  """

  def __init__(self, vocabulary: Mapping[str, int], do_lower_case: bool):
    self._ids = vocabulary
    self._basic = BasicTokenizer(do_lower_case)
    self._wordpiece = WordpieceTokenizer(vocabulary)
    self._known: Dict[str, List[int]] = {}

  def __call__(self, line: str) -> List[int]:
    """Returns the ids of a line."""
    if not line.isprintable():
      # Some of the characters that str.split takes for white space are not
      # for BERT: such a line does not fall into words that easily.
      return self._convert(line)
    ids: List[int] = []
    find_known = self._known.get
    for word in line.split():
      known = find_known(word)
      ids += self._learn(word) if known is None else known
    return ids

  def _learn(self, word: str) -> List[int]:
    ids = self._convert(word)
    if len(word) <= _MAX_CACHED_CHARS:
      if len(self._known) >= _MAX_CACHED_WORDS:
        self._known.clear()
      self._known[word] = ids
    return ids

  def _convert(self, text: str) -> List[int]:
    ids: List[int] = []
    for token in self._basic.tokenize(text):
      whole = self._ids.get(token)
      if whole is None:
        ids += [self._ids[piece] for piece in self._wordpiece.tokenize(token)]
      else:
        ids.append(whole)
    return ids


class TokenizedBlock(NamedTuple):
  """The sentences of a block.

  `lengths` has the number of pieces of each sentence, and 0 where a document
  ends (blank lines in a row give several); `ids` the pieces of all.
  """
  lengths: Any
  ids: Any
  # "FILE, line N" of the lines that are left out: text, but no piece of it.
  skipped: Tuple[str, ...] = ()


def tokenize_block(block: Block, tokenizer: IdTokenizer) -> TokenizedBlock:
  """Tokenizes the lines of a block; lines without any piece are left out."""
  lengths: List[int] = []
  all_ids: List[int] = []
  skipped: List[str] = []
  for number, line in enumerate(decode_lines(block), block.first_line):
    ids = tokenizer(line)
    if ids or not line:
      lengths.append(len(ids))
      all_ids += ids
    else:
      skipped.append("%s, line %d" % (block.path, number))
  return TokenizedBlock(np.array(lengths, np.int32),
                        np.array(all_ids, np.int32), tuple(skipped))
