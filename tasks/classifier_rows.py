"""Rows of tsv and csv files, each knowing its place.

Lives here: bytes -> lines -> rows of cells, and the errors of doing that. Not
here: what the cells mean (tasks/classifier_processors.py for the tasks with a
fixed layout, tasks/classifier_tsv.py for files with named columns).
"""
import csv
import logging
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from multigpu.errors import UserError
from multigpu.files import is_utf16
from tasks import skipped
from tasks.skipped import name_some

_LOGGER = logging.getLogger(__name__)
_BLOCK_BYTES = 1 << 20
_SHOWN_CHARS = 60

# (line number, text with its line end)
Line = Tuple[int, str]


class RowFormat(NamedTuple):
  """How lines are cut into cells.

  Without a quote character, quotes are text and a line is a row (GLUE's tsv).
  With one, a quoted cell may hold delimiters and line ends, and a doubled
  quote stands for one (csv).
  """
  delimiter: str = "\t"
  quotechar: Optional[str] = None


TSV = RowFormat()
CSV = RowFormat(",", '"')


class Row(List[str]):
  """The cells of one row, with the file and line that it begins on."""

  def __init__(self, cells: Sequence[str], path: str, line_number: int):
    super().__init__(cells)
    self.path = path
    self.line_number = line_number

  def cell(self, index: int, name: str) -> str:
    """Returns a cell; `name` says in the error what is missing there.

    Raises:
      UserError: the row has too few columns.
    """
    if -len(self) <= index < len(self):
      return self[index]
    raise self.error(
        "%d columns, wanted at least %d (column %d is the %s), in %r: a line "
        "break or another separator than the tab in it?" %
        (len(self), index + 1, index + 1, name, shorten("\t".join(self))))

  def error(self, problem: str) -> UserError:
    """Returns an error that says where this row is."""
    return UserError("%s, line %d: %s" % (self.path, self.line_number, problem))


def iterate_rows(path: str, row_format: RowFormat = TSV,
                 strict: bool = False) -> Iterator[Row]:
  """Reads a file row by row; memory does not grow with the file.

  A byte order mark is dropped. Blank lines are no rows: after the last row one
  warning counts them and names the first ones.

  Args:
    path: anything that tf.io.gfile opens.
    row_format: TSV, CSV or another one.
    strict: blank lines are an error.

  Raises:
    UserError: the file cannot be read, is not UTF-8, holds NUL, or is not cut
      into cells by the rules of csv.
  """
  if row_format.quotechar is None:
    rows = _split_lines(path, row_format.delimiter)
  else:
    rows = _parse_quoted(path, row_format)
  num_rows = 0
  blank_lines = []
  for line_number, cells in rows:
    if not cells:
      blank_lines.append(line_number)
      continue
    num_rows += 1
    yield Row(cells, path, line_number)
  if blank_lines:
    report_skipped(path, num_rows, blank_lines, "blank", strict)


def report_skipped(path: str, num_kept: int, lines: Sequence[int],
                   reason: str, strict: bool) -> None:
  """Tells which lines of a file are left out; an error where `strict`.

  Args:
    path: the file.
    num_kept: rows that are used, with the header.
    lines: the numbers of the others.
    reason: what is wrong with them.
    strict: raise UserError instead of logging a warning.
  """
  skipped.report(_LOGGER, "%s: read %d rows, kept %d, skipped %d: %s (line %s)"
                 % (path, num_kept + len(lines), num_kept, len(lines), reason,
                    name_some(lines)), strict)


def shorten(text: str) -> str:
  """A text cut to what fits into a message."""
  return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."


def doubt_separator(header: Row) -> str:
  """A hint for a header that another separator would cut into columns."""
  if len(header) != 1:
    return ""
  found = [name for name, character in (
      ("a tab", "\t"), ("a comma", ","), ("a semicolon", ";"), ("a bar", "|"))
           if character in header[0]]
  if not found:
    return ""
  return (". Is %s the separator? A .tsv file has tabs, a .csv file commas."
          % found[0])


def no_examples(path: str, explanation: str) -> UserError:
  """The error for a file that holds nothing to train on or to predict."""
  return UserError("%s holds 0 examples: %s" % (path, explanation))


def _split_lines(path: str,
                 delimiter: str) -> Iterator[Tuple[int, List[str]]]:
  for line_number, line in _iterate_lines(path):
    line = line.rstrip("\n")
    if line.endswith("\r"):
      line = line[:-1]
    # Several rows, that is, and not a carriage return within a text.
    if line_number == 1 and "\r" in line and all(
        delimiter in part for part in line.split("\r") if part):
      raise _carriage_returns(path)
    # A line of tabs alone is a row of empty cells.
    is_blank = delimiter not in line and not line.strip()
    yield line_number, [] if is_blank else line.split(delimiter)


def _carriage_returns(path: str) -> UserError:
  return UserError(
      "%s: its lines end with carriage returns (\\r) alone, wanted \\n or "
      "\\r\\n: convert it, for example with tr '\\r' '\\n'." % path)


def _parse_quoted(path: str, row_format: RowFormat
                  ) -> Iterator[Tuple[int, List[str]]]:
  lines = (line for _, line in _iterate_lines(path))
  reader = csv.reader(lines, delimiter=row_format.delimiter,
                      quotechar=row_format.quotechar, strict=True)
  while True:
    first_line = reader.line_num + 1
    try:
      cells = next(reader)
    except StopIteration:
      return
    except csv.Error as error:
      if "new-line character" in str(error):
        raise _carriage_returns(path) from None
      raise UserError(
          "%s, line %d: not csv (%s). A cell with a comma, a quote or a line "
          "break stands in double quotes, and a quote in it is doubled; is a "
          "quote opened here that is never closed? (Texts over %d characters "
          "need a .tsv file.)"
          % (path, first_line, error, csv.field_size_limit())) from None
    is_blank = len(cells) == 1 and not cells[0].strip()
    yield first_line, [] if is_blank else cells


def _iterate_lines(path: str) -> Iterator[Line]:
  r"""Yields (number from 1, line with its end); lines end at "\n" only."""
  line_number = 1
  for block in _iterate_blocks(path):
    if line_number == 1 and block.startswith(b"\xef\xbb\xbf"):
      block = block[3:]
    text = _decode(block, path, line_number)
    lines = text.split("\n")
    last = lines.pop()
    for line in lines:
      yield line_number, line + "\n"
      line_number += 1
    if last:
      yield line_number, last


def _iterate_blocks(path: str) -> Iterator[bytes]:
  """Yields the file in pieces that end where a line ends."""
  import tensorflow.compat.v1 as tf  # slow, and of no use to the rest
  try:
    with tf.io.gfile.GFile(path, "rb") as stream:
      while True:
        block = stream.read(_BLOCK_BYTES)
        if not block:
          return
        yield block + stream.readline()
  except tf.errors.OpError as error:
    raise UserError("cannot read %s (%s): is --data_dir the folder with this "
                    "file?" % (path, error.message)) from error


def _decode(block: bytes, path: str, first_line: int) -> str:
  def line_of(offset: int) -> int:
    return first_line + block.count(b"\n", 0, offset)

  try:
    text = block.decode("utf-8")
  except UnicodeDecodeError as error:
    raise UserError(
        "%s, line %d: byte 0x%02x is not UTF-8 text: convert the file (iconv "
        "%s-t UTF-8) or mend the line."
        % (path, line_of(error.start), block[error.start],
           "-f UTF-16 " if is_utf16(block) else "")) from None
  nul = block.find(b"\0")
  if nul >= 0:
    raise UserError(
        "%s, line %d: a NUL byte: the file is not UTF-8 text (UTF-16 from a "
        "spreadsheet? iconv -f UTF-16 -t UTF-8 converts it)."
        % (path, line_of(nul)))
  return text
