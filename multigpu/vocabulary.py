"""Whether a vocabulary is one of BERT, fits the model and its letter case.

Works on what tokenization.parse_vocab returns; no TensorFlow.
"""
import collections
import logging
from typing import Iterable, List, Mapping, NamedTuple, Optional

from multigpu.errors import UserError
import tokenization

_LOG = logging.getLogger(__name__)

MARKERS = ("[CLS]", "[SEP]", "[UNK]")
MASK = "[MASK]"
PADDING = "[PAD]"
# Share of entries with upper-case letters from which a vocabulary is a cased
# one. Google's: English cased 0.29, multilingual cased 0.16, Chinese 0.0001
# ("<S>", "<T>"), uncased 0.
_CASED_SHARE = 0.01

_HINT = "Give the vocab.txt that came with the checkpoint."


class Case(NamedTuple):
  """What is done with upper case, and whether the user said so."""
  do_lower_case: bool
  is_given: bool


def check(content: bytes, path: str, case: Case,
          markers: Iterable[str] = MARKERS) -> Mapping[str, int]:
  """Checks a vocabulary by itself, and warns of what is odd about it.

  Args:
    content: of the file.
    path: its name.
    case: what --do_lower_case says.
    markers: entries that are needed.

  Returns:
    entry -> id, as tokenization.load_vocab.

  Raises:
    UserError: not UTF-8, a marker is missing, or upper case is lost that the
      vocabulary has, and the user did not ask for that.
  """
  where = "--vocab_file={}".format(path)
  try:
    vocab = tokenization.parse_vocab(content, path)
  except ValueError as error:
    # It names the file and the line, and ends with what to do.
    raise UserError("--vocab_file: {}".format(error)) from error
  missing = [marker for marker in markers if marker not in vocab]
  if missing:
    raise UserError("{}: no {} among its {} entries, which begin with {}. "
                    "{}{}".format(where, ", ".join(missing), len(vocab),
                                  _first_entries(vocab), _HINT,
                                  _explain_json(content)))
  _warn_of_lines(content, vocab, where)
  _check_case(vocab, case, where)
  return vocab


def count_entries(vocab: Mapping[str, int]) -> int:
  """The number of ids; blank lines at the end of the file do not count."""
  return max((index for entry, index in vocab.items() if entry),
             default=-1) + 1


def check_no_blank_end(vocab: Mapping[str, int], path: str) -> None:
  """Refuses blank lines at the end, which random words would be drawn from.

  Their numbers are beyond the model's vocabulary.

  Raises:
    UserError: the last line is blank.
  """
  if vocab.get("", -1) >= count_entries(vocab):
    raise UserError("--vocab_file={}: blank lines after line {}: remove them, "
                    "each counts as an entry.".format(
                        path, count_entries(vocab)))


def check_size(vocab: Mapping[str, int], vocab_size: int, path: str) -> None:
  """Raises UserError where a vocabulary has more entries than the model."""
  num_entries = count_entries(vocab)
  if num_entries > vocab_size:
    raise UserError(
        "--vocab_file={} has {} entries, but bert_config.json says vocab_size "
        "{}: use the vocabulary that came with the checkpoint.".format(
            path, num_entries, vocab_size))


def warn_of_size(vocab: Mapping[str, int], vocab_size: int, path: str) -> None:
  """Says when a vocabulary has fewer entries than the model.

  No error: some models' tables are padded to a round number.
  """
  num_entries = count_entries(vocab)
  if num_entries < vocab_size:
    _LOG.warning(
        "--vocab_file=%s has %d entries, but bert_config.json says vocab_size "
        "%d: the last %d are never used. If this is not the vocabulary of the "
        "checkpoint, its words have the numbers of other words.", path,
        num_entries, vocab_size, vocab_size - num_entries)


def is_cased(vocab: Iterable[str]) -> Optional[bool]:
  """Whether a vocabulary knows upper case; None where it has no Latin letters.

  Entries in brackets do not count.
  """
  words = [entry for entry in vocab if entry[:1] not in ("[", "<")]
  num_upper = sum(entry != entry.lower() for entry in words)
  if num_upper > _CASED_SHARE * len(words):
    return True
  has_letters = sum(chr(code) in words for code in range(ord("a"), ord("f")))
  return False if has_letters else None


def _check_case(vocab: Mapping[str, int], case: Case, where: str) -> None:
  cased = is_cased(vocab)
  if cased is None or cased != case.do_lower_case:
    return
  if not cased:
    _LOG.warning(
        "--do_lower_case=False, but %s has no entries in upper case: each word "
        "with a capital letter becomes [UNK]. For an uncased model leave the "
        "flag out.", where)
    return
  num_upper = sum(entry != entry.lower() for entry in vocab)
  message = ("{} has {} entries with upper-case letters (a cased model), but "
             "--do_lower_case={} would never find them".format(
                 where, num_upper, case.do_lower_case))
  if not case.is_given:
    raise UserError(
        message + " (it is the default): pass --do_lower_case=False, or "
        "--do_lower_case=True if lower-cased text is meant.")
  _LOG.warning("%s. Cased models want --do_lower_case=False.", message)


def _warn_of_lines(content: bytes, vocab: Mapping[str, int],
                   where: str) -> None:
  """Blank lines, entries that come twice, and padding that is none."""
  lines = content.decode("utf-8-sig").rstrip().split("\n")
  # U+2028 is an entry of Google's Chinese vocabulary, and white space.
  blank = [number for number, line in enumerate(lines, 1)
           if not line.strip("\r\t ")]
  if blank:
    _LOG.warning("%s: blank in %s: each counts as an entry.", where,
                 _describe_lines(blank))
  entries = [line.strip() for line in lines]
  if len(vocab) < len(entries):
    counts = collections.Counter(filter(None, entries))
    twice = {entry for entry, count in counts.items() if count > 1}
    if twice:
      _LOG.warning(
          "%s: %d entries come more than once, in %s: the last line of each "
          "counts.", where, len(twice), _describe_lines(
              [number for number, entry in enumerate(entries, 1)
               if entry in twice]))
  if vocab.get(PADDING) != 0:
    _LOG.warning("%s: line 1 is %r, where BERT has %s: rows are padded with id "
                 "0.", where, entries[0], PADDING)


def _describe_lines(numbers: List[int]) -> str:
  return "line{} {}{}".format(
      "" if len(numbers) == 1 else "s", ", ".join(map(str, numbers[:5])),
      " and {} more".format(len(numbers) - 5) if len(numbers) > 5 else "")


def _first_entries(vocab: Mapping[str, int]) -> str:
  return ", ".join(repr(entry[:30]) for entry in list(vocab)[:3])


def _explain_json(content: bytes) -> str:
  if not content.lstrip().startswith(b"{"):
    return ""
  return " This file is JSON: were --vocab_file and --bert_config_file swapped?"
