"""Any user's data: train/dev/test.tsv or .csv with named columns.

Lives here: which column is which, which labels there are, labels.txt. Not here:
cutting files into rows (tasks/classifier_rows.py).

The first line of each file names its columns. In .tsv files quotes are text and
a row is a line; .csv files follow RFC 4180 (quoted cells may hold commas and
line ends). Labels are found in the training data and put in a fixed order, see
`sort_labels`.
"""
import logging
import os
import re
from typing import (Callable, Dict, Iterable, Iterator, List, NamedTuple,
                    Optional, Sequence, Set, Tuple)

from multigpu.errors import UserError
from multigpu.files import write_text_atomically
from tasks.classifier_data import (CLASSES, MULTI_LABEL, InputExample,
                                   LabelEncoder, split_labels)
from tasks.classifier_layout import DataProcessor
from tasks.classifier_rows import (CSV, TSV, Row, RowFormat, doubt_separator,
                                   iterate_rows, no_examples, shorten)
from tasks.skipped import name_some

_LOGGER = logging.getLogger(__name__)

_FORMATS: Dict[str, RowFormat] = {".tsv": TSV, ".csv": CSV}
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?", re.ASCII)

# Names that columns usually have, the first that fits wins; in lower case.
_PAIR_NAMES = (("text_a", "text_b"), ("sentence1", "sentence2"),
               ("sentence_1", "sentence_2"), ("question1", "question2"),
               ("premise", "hypothesis"), ("question", "sentence"),
               ("text1", "text2"), ("query", "passage"))
_TEXT_NAMES = ("text", "text_a", "sentence", "question", "review", "content",
               "comment_text", "comment", "utterance", "query")
_LABEL_NAMES = ("label", "labels", "category", "class", "target", "intent",
                "sentiment", "is_duplicate")


class TsvSettings(NamedTuple):
  """The flags of --task_name=tsv, under their names.

  A column that is not named ("") is guessed from usual names. A text_b is
  guessed only together with text_a.
  """
  text_a_column: str = ""
  text_b_column: str = ""
  label_column: str = ""
  multi_label: bool = False  # Labels separated by a comma, any number of them.


class Columns(NamedTuple):
  """Names of the columns in use."""
  text_a: str
  text_b: Optional[str]
  label: str


class TsvProcessor(DataProcessor):
  """Reads the files of a folder with the user's own data.

  Either give the labels (of `read_labels`), or call find_labels or
  get_train_examples before anything else.
  """

  def __init__(self, settings: TsvSettings = TsvSettings(),
               labels: Sequence[str] = ()):
    """Creates it; `labels` in the order of the model's outputs."""
    if settings.text_b_column and not settings.text_a_column:
      raise UserError(
          "--text_b_column=%s without --text_a_column: name both columns."
          % settings.text_b_column)
    self.label_kind = MULTI_LABEL if settings.multi_label else CLASSES
    self._settings = settings
    self._labels = list(labels)
    # What was guessed for the first file holds for the others.
    self._columns = Columns(settings.text_a_column,
                            settings.text_b_column or None,
                            settings.label_column)

  def find_labels(self, data_dir: str) -> List[str]:
    """Reads the training file and returns its labels, in their order.

    Raises:
      UserError: see get_train_examples.
    """
    self.get_train_examples(data_dir)
    return self.get_labels()

  def get_labels(self) -> List[str]:
    """Returns the labels, in the order of the model's outputs."""
    if not self._labels:
      raise ValueError("no labels yet: give them to TsvProcessor or call "
                       "find_labels first")
    return list(self._labels)

  def get_train_examples(self, data_dir: str) -> List[InputExample]:
    """Returns the examples to train on; finds the labels if none were given.

    Raises:
      UserError: no such file, or one that cannot be used: columns that are not
        there, no examples, rows with too few or too many columns, labels that
        are empty, unknown or less than two.
    """
    if self._labels:
      return self._read_labelled(data_dir, "train")
    path, rows = self._open(data_dir, "train")
    examples = []
    names: Set[str] = set()
    for row, example in self._make_examples(rows, "train"):
      found = self._split(row, str(example.label))
      names.update(found)
      examples.append(example)
    _check_labels(path, names, self._columns.label, len(examples),
                  self.label_kind)
    self._labels = sort_labels(names)
    return examples

  def get_dev_examples(self, data_dir: str) -> List[InputExample]:
    """Returns the examples to evaluate with; see get_train_examples."""
    return self._read_labelled(data_dir, "dev")

  def get_test_examples(self, data_dir: str) -> List[InputExample]:
    """Returns the examples to predict; see get_train_examples.

    The file may lack the column with labels; where it has one it is not read.
    All labels are place-holders: the first one, or none (multi_label).
    """
    path, rows = self._open(data_dir, "test")
    label = "" if self.label_kind == MULTI_LABEL else self.get_labels()[0]
    examples = [example
                for _, example in self._make_examples(rows, "test", label)]
    if not examples:
      raise _none(path)
    return examples

  def _read_labelled(self, data_dir: str, name: str) -> List[InputExample]:
    path, rows = self._open(data_dir, name)
    encoder = LabelEncoder(self.get_label_set())
    examples = []
    for row, example in self._make_examples(rows, name):
      try:
        encoder.encode(example.label)
      except ValueError as error:
        raise row.error(
            "column %r: %s (the labels of the training data)"
            % (self._columns.label, error)) from None
      examples.append(example)
    if not examples:
      raise _none(path)
    return examples

  def _split(self, row: Row, label: str) -> List[str]:
    """Returns the labels of a training row."""
    if self.label_kind == MULTI_LABEL:
      return split_labels(label)
    if not label:
      raise row.error("no label in column %r, in %r: fill it in or remove the "
                      "row." % (self._columns.label, shorten("\t".join(row))))
    return [label]

  def _open(self, data_dir: str, name: str) -> Tuple[str, Iterator[Row]]:
    path = find_file(data_dir, name)
    return path, iterate_rows(path, _FORMATS[os.path.splitext(path)[1]],
                              self.strict)

  def _make_examples(self, rows: Iterator[Row], name: str,
                     test_label: Optional[str] = None
                     ) -> Iterator[Tuple[Row, InputExample]]:
    """Yields the rows below the header with their examples."""
    header = next(rows, None)
    if header is None:
      return
    columns = [cell.strip() for cell in header]
    self._columns = resolve_columns(header, columns, self._columns,
                                    needs_label=test_label is None)
    place_of = {column: index for index, column in enumerate(columns)}
    text_a, text_b, label = self._columns
    for row in rows:
      _check_width(row, columns)
      yield row, InputExample(
          "%s-%d" % (name, row.line_number - 1), row[place_of[text_a]],
          None if text_b is None else row[place_of[text_b]],
          row[place_of[label]].strip() if test_label is None else test_label)


def find_file(data_dir: str, name: str) -> str:
  """Returns the path of `name` with .tsv or .csv.

  Raises:
    UserError: none of them or both are there.
  """
  import tensorflow.compat.v1 as tf  # slow, and of no use to the rest
  paths = [os.path.join(data_dir, name + suffix) for suffix in sorted(_FORMATS)]
  found = [path for path in paths if tf.io.gfile.exists(path)]
  if len(found) == 1:
    return found[0]
  if found:
    raise UserError("--data_dir=%s holds %s.csv and %s.tsv: remove the one "
                    "that is not meant." % (data_dir, name, name))
  raise UserError(
      "--data_dir=%s holds neither %s.csv nor %s.tsv: --do_train needs train, "
      "--do_eval dev and --do_predict test, each as .csv or .tsv with a header."
      % (data_dir, name, name))


def resolve_columns(header: Row, columns: Sequence[str], wanted: Columns,
                    needs_label: bool) -> Columns:
  """Finds the columns of a file, guessing those that are not named.

  Args:
    header: the row, for messages.
    columns: its cells.
    wanted: names of columns; "" where the name must be guessed.
    needs_label: False for a file that may lack labels.

  Raises:
    UserError: a column is not there, is there twice, or cannot be guessed.
  """
  text_a, text_b, label = wanted
  if not text_a:
    text_a, text_b = _guess_texts(header, columns)
  _check_column(header, columns, text_a, "text_a_column")
  if text_b is not None:
    _check_column(header, columns, text_b, "text_b_column")
  if needs_label:
    label = label or _guess(header, columns, _LABEL_NAMES, "label_column")
    _check_column(header, columns, label, "label_column")
  found = Columns(text_a, text_b, label)
  if found != wanted:
    _LOGGER.info(
        "%s: text_a in column %r, text_b in %s, label in %s", header.path,
        text_a, "no column" if text_b is None else "column %r" % text_b,
        "column %r" % label if label else "no column")
  return found


def _guess_texts(header: Row, columns: Sequence[str]
                 ) -> Tuple[str, Optional[str]]:
  by_name = _by_lower_case(columns)
  for name_a, name_b in _PAIR_NAMES:
    if name_a in by_name and name_b in by_name:
      return by_name[name_a], by_name[name_b]
  return _guess(header, columns, _TEXT_NAMES, "text_a_column"), None


def _guess(header: Row, columns: Sequence[str], names: Iterable[str],
           flag: str) -> str:
  by_name = _by_lower_case(columns)
  for name in names:
    if name in by_name:
      return by_name[name]
  raise header.error(
      "which column is it? Pass --%s=NAME; the first line of the file names "
      "the columns, here: %s%s"
      % (flag, _show_columns(columns), doubt_separator(header)))


def _by_lower_case(columns: Sequence[str]) -> Dict[str, str]:
  return {column.lower(): column for column in columns}


def _check_column(header: Row, columns: Sequence[str], name: str,
                  flag: str) -> None:
  if columns.count(name) == 1:
    return
  problem = "there is no such column" if name not in columns else (
      "there are %d such columns" % columns.count(name))
  raise header.error(
      "--%s=%s, but %s: the first line of the file names the columns, here: %s"
      "%s" % (flag, name, problem, _show_columns(columns),
              doubt_separator(header)))


def _show_columns(columns: Sequence[str]) -> str:
  return name_some([repr(shorten(column)) for column in columns], limit=30)


def _check_width(row: Row, columns: Sequence[str]) -> None:
  """A comma that is not quoted shifts cells: too many are as bad as too few."""
  if len(row) != len(columns):
    raise row.error(
        "%d columns, wanted %d as in the header (%s), in %r: a line break, tab "
        "or unquoted comma in a text?"
        % (len(row), len(columns), _show_columns(columns),
           shorten("\t".join(row))))


def _check_labels(path: str, names: Set[str], column: str, num_examples: int,
                  kind: str) -> None:
  if not num_examples:
    raise _none(path)
  for name in sorted(names):
    if "\n" in name or "\r" in name:
      raise UserError("%s: label %r of column %r has a line break: labels are "
                      "single lines." % (path, name, column))
  if len(names) < (1 if kind == MULTI_LABEL else 2):
    raise UserError(
        "%s: column %r holds %s, wanted at least %s: is it the column with the "
        "labels (--label_column)?" % (
            path, column,
            "only the label %r" % names.pop() if names else "no label",
            "two labels" if kind == CLASSES else "one label"))


def _none(path: str) -> UserError:
  return no_examples(path, "there must be rows below the header, its first "
                     "line.")


def sort_labels(names: Iterable[str]) -> List[str]:
  """Puts labels in their fixed order: that of the model's outputs.

  Numbers in numeric order ("2" before "10") where all labels are numbers; else
  the order of Unicode code points ("Z" before "a").
  """
  ordered = sorted(set(names))
  if all(_NUMBER.fullmatch(name) for name in ordered):
    key: Callable[[str], float] = float
    ordered.sort(key=key)
  return ordered


def write_labels(path: str, labels: Sequence[str]) -> None:
  """Writes labels.txt: one label a line, in the order of the outputs."""
  write_text_atomically(path, "".join(label + "\n" for label in labels))


def read_labels(path: str) -> List[str]:
  """Reads what write_labels wrote.

  Raises:
    UserError: the file cannot be read, or holds no labels or one twice.
  """
  labels: Dict[str, None] = {}  # a set that keeps its order
  # No line holds this delimiter: a line is one cell.
  for row in iterate_rows(path, RowFormat(delimiter="\n")):
    label = row[0].strip()
    if label in labels:
      raise row.error("label %r is there twice: one label a line, each once."
                      % label)
    labels[label] = None
  if not labels:
    raise UserError("%s holds no labels: wanted one a line, as the training "
                    "run writes them." % path)
  return list(labels)
