"""How a task with a fixed file layout is described, and how it is read.

Lives here: the interface of a processor, and the one that works from a table of
files and columns. Not here: the tables (tasks/classifier_processors.py),
cutting files into rows (tasks/classifier_rows.py).
"""
import logging
import os
from typing import Any, Iterable, List, NamedTuple, Optional, Tuple

from multigpu.errors import UserError
from tasks.classifier_data import (CLASSES, REGRESSION, InputExample,
                                   LabelEncoder, LabelSet)
from tasks.classifier_rows import (TSV, Row, RowFormat, iterate_rows,
                                   no_examples, report_skipped, shorten)
from tasks.skipped import name_some, report

_LOGGER = logging.getLogger(__name__)


class DataProcessor:
  """Reads the examples of a task; users derive their own from it.

  Attributes:
    label_kind: see tasks/classifier_data.py.
    strict: refuse a file instead of leaving rows of it out.
  """

  label_kind = CLASSES
  strict = False

  def get_train_examples(self, data_dir: str) -> List[InputExample]:
    """Returns the examples to train on, in the order of the file."""
    raise NotImplementedError()

  def get_dev_examples(self, data_dir: str) -> List[InputExample]:
    """Returns the examples to evaluate with, in the order of the file."""
    raise NotImplementedError()

  def get_test_examples(self, data_dir: str) -> List[InputExample]:
    """Returns the examples to predict; their labels mean nothing."""
    raise NotImplementedError()

  def get_labels(self) -> List[str]:
    """Returns the names of the labels; none for a regression."""
    raise NotImplementedError()

  def get_label_set(self) -> LabelSet:
    """Returns the labels with their kind."""
    return LabelSet(self.label_kind, tuple(self.get_labels()))

  @classmethod
  def _read_tsv(cls, input_file: str,
                quotechar: Optional[str] = None) -> List[List[str]]:
    """Returns the rows of a tab separated file, without blank lines.

    Without `quotechar`, quotes are text.

    Raises:
      UserError: see iterate_rows.
    """
    return list(iterate_rows(input_file, RowFormat("\t", quotechar)))


class Layout(NamedTuple):
  """Where the examples of one set are; columns count from 0."""
  file_name: str
  # Names of examples are "<guid>-<number of the row, or cell of guid_column>".
  guid: str
  text_a: int
  text_b: Optional[int] = None
  label: Optional[int] = None  # None: a test set without labels.
  has_header: bool = True
  guid_column: Optional[int] = None


class LayoutProcessor(DataProcessor):
  """A task that is described by the layouts of its files.

  Attributes:
    labels: their names, in the order of the model's outputs.
    train, dev, test: the layouts; no test where no test set exists.
    skips_short_rows: leave out labelled rows with too few columns, with a
      warning, instead of refusing the file.
  """

  labels: Tuple[str, ...] = ("0", "1")
  train: Layout
  dev: Layout
  test: Optional[Layout] = None
  skips_short_rows = False

  def get_train_examples(self, data_dir: str) -> List[InputExample]:
    """Returns the examples to train on, in the order of the file.

    Raises:
      UserError: the file cannot be read, holds no examples, or a row has too
        few columns or an unknown label.
    """
    return self._read(data_dir, self.train)

  def get_dev_examples(self, data_dir: str) -> List[InputExample]:
    """Returns the examples to evaluate with; see get_train_examples."""
    return self._read(data_dir, self.dev)

  def get_test_examples(self, data_dir: str) -> List[InputExample]:
    """Returns the examples to predict; see get_train_examples.

    Their labels are place-holders: the first label, or 0 (regression).
    """
    if self.test is None:
      raise UserError(
          "--do_predict=True, but this task has no test set (its files are %s "
          "and %s): score the dev set with --do_eval=True, or predict files of "
          "your own with --task_name=tsv."
          % (self.train.file_name, self.dev.file_name))
    return self._read(data_dir, self.test)

  def get_labels(self) -> List[str]:
    """Returns the names of the labels; none for a regression."""
    return list(self.labels)

  def _convert_label(self, cell: str) -> str:
    """Returns the label that a cell stands for."""
    return cell

  def _select(self, rows: Iterable[Row], layout: Layout) -> Iterable[Row]:
    """Returns the rows that belong to the task."""
    del layout
    return rows

  def _read(self, data_dir: str, layout: Layout) -> List[InputExample]:
    path = os.path.join(data_dir, *layout.file_name.split("/"))
    encoder = LabelEncoder(self.get_label_set())
    examples = []
    short_rows = []
    for row in self._select(self._rows(path, layout, encoder), layout):
      if (self.skips_short_rows and layout.label is not None
          and len(row) < _num_columns(layout)):
        short_rows.append(row.line_number)
        continue
      examples.append(self._make_example(row, layout, encoder))
    if short_rows:
      report_skipped(path, len(examples), short_rows, "fewer than %d columns"
                     % _num_columns(layout), self.strict)
    if not examples:
      raise no_examples(path, self._explain_none(layout))
    return examples

  def _rows(self, path: str, layout: Layout,
            encoder: LabelEncoder) -> Iterable[Row]:
    """Yields the rows after the header."""
    rows = iterate_rows(path, TSV, self.strict)
    header = next(rows, None) if layout.has_header else None
    if header is None:
      yield from rows
      return
    self._check_header(header, layout, encoder)
    long_rows = []
    for row in rows:
      if len(row) > len(header):
        long_rows.append(row.line_number)
      yield row
    if long_rows:
      _LOGGER.warning(
          "%s: %d rows have more columns than the %d of the header (line %s): "
          "a tab in a text? What follows the wanted columns is not read.", path,
          len(long_rows), len(header), name_some(long_rows))

  def _check_header(self, row: Row, layout: Layout,
                    encoder: LabelEncoder) -> None:
    """Warns where the row that is skipped looks like an example."""
    column = 0 if layout.label is None else layout.label
    if len(row) < _num_columns(layout):
      return
    cell = row[column]
    if not (cell.isdigit() if layout.label is None
            else _is_label(self._convert_label(cell), encoder)):
      return
    report(
        _LOGGER, "%s, line %d: skipped as the header that this file has by the "
        "task's layout, but it looks like an example (column %d holds %r): if "
        "the file has no header, put one above this line" % (
            row.path, row.line_number, column % len(row) + 1, shorten(cell)),
        self.strict)

  def _make_example(self, row: Row, layout: Layout,
                    encoder: LabelEncoder) -> InputExample:
    number = row.line_number - 1  # A header counts, as in Google's guids.
    guid: Any = number
    if layout.guid_column is not None:
      guid = row.cell(layout.guid_column, "name of the example")
    text_a = row.cell(layout.text_a, "text")
    text_b = None
    if layout.text_b is not None:
      text_b = row.cell(layout.text_b, "second text")
    return InputExample("%s-%s" % (layout.guid, guid), text_a, text_b,
                        self._read_label(row, layout, encoder))

  def _read_label(self, row: Row, layout: Layout,
                  encoder: LabelEncoder) -> str:
    if layout.label is None:
      return "0" if self.label_kind == REGRESSION else self.labels[0]
    row.cell(_num_columns(layout) - 1, "label")
    cell = row[layout.label]
    try:
      encoder.encode(self._convert_label(cell))
    except ValueError as error:
      hint = ""
      if not layout.has_header and row.line_number == 1:
        hint = " (this task's %s has no header row)" % layout.file_name
      raise row.error("column %d: %s%s, in %r" % (
          layout.label % len(row) + 1, error, hint,
          shorten("\t".join(row)))) from None
    return self._convert_label(cell)

  def _explain_none(self, layout: Layout) -> str:
    if layout.has_header:
      return "there must be rows below the header, its first line."
    return "there must be rows in it (the file has no header)."


def _num_columns(layout: Layout) -> int:
  """Columns that a row must have; a label in column -1 follows the texts."""
  used = [layout.text_a, layout.text_b or 0, layout.label or 0,
          layout.guid_column or 0]
  return max(used) + (2 if layout.label == -1 else 1)


def _is_label(text: str, encoder: LabelEncoder) -> bool:
  try:
    encoder.encode(text)
  except ValueError:
    return False
  return True
