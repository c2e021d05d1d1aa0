"""The tasks with a fixed file layout: XNLI, MRPC, CoLA and the rest of GLUE.

Lives here: which file, which columns, which labels. Not here: how files are
read by them (tasks/classifier_layout.py), files with named columns
(tasks/classifier_tsv.py).

File names, columns, guids and the order of labels are those of
google-research/bert for XNLI, MNLI, MRPC and CoLA, and those of the GLUE
downloads (https://gluebenchmark.com) for the others. In all files a row is a
line, cells are separated by tabs and quotes are text.
"""
from typing import Dict, Iterable, Type

from tasks.classifier_data import REGRESSION
from tasks.classifier_layout import DataProcessor, Layout, LayoutProcessor
from tasks.classifier_rows import Row

__all__ = [
    "PROCESSORS", "ColaProcessor", "DataProcessor", "MnliMismatchedProcessor",
    "MnliProcessor", "MrpcProcessor", "QnliProcessor", "QqpProcessor",
    "RteProcessor", "Sst2Processor", "StsbProcessor", "WnliProcessor",
    "XnliProcessor", "describe_header_rows"]

_NLI_LABELS = ("contradiction", "entailment", "neutral")
_ENTAILMENT_LABELS = ("entailment", "not_entailment")


class XnliProcessor(LayoutProcessor):
  """XNLI in one language: premise, hypothesis -> 3 classes.

  Header row: multinli/multinli.train.<language>.tsv and xnli.dev.tsv have one,
  which is skipped. There is no test set.

  Attributes:
    language: "zh"; set another one before reading.
  """

  labels = _NLI_LABELS
  dev = Layout("xnli.dev.tsv", "dev", text_a=6, text_b=7, label=1)

  def __init__(self) -> None:
    self.language = "zh"

  @property
  def train(self) -> Layout:  # type: ignore[override]
    """The layout of the training file of this language."""
    return Layout("multinli/multinli.train.%s.tsv" % self.language, "train",
                  text_a=0, text_b=1, label=2)

  def _convert_label(self, cell: str) -> str:
    return "contradiction" if cell == "contradictory" else cell

  def _select(self, rows: Iterable[Row], layout: Layout) -> Iterable[Row]:
    if layout is not self.dev:
      return rows
    return (row for row in rows if row.cell(0, "language") == self.language)

  def _explain_none(self, layout: Layout) -> str:
    explanation = super()._explain_none(layout)
    if layout is self.dev:
      explanation += " Only rows of the language %r count." % self.language
    return explanation


class MnliProcessor(LayoutProcessor):
  """MultiNLI, evaluated on the genres of the training set.

  Header row: all files have one, which is skipped (train.tsv, dev_matched.tsv,
  test_matched.tsv).
  """

  labels = _NLI_LABELS
  train = Layout("train.tsv", "train", 8, 9, -1, guid_column=0)
  dev = Layout("dev_matched.tsv", "dev_matched", 8, 9, -1, guid_column=0)
  test = Layout("test_matched.tsv", "test", 8, 9, guid_column=0)


class MnliMismatchedProcessor(MnliProcessor):
  """MultiNLI, evaluated on other genres than those of the training set.

  Header row: all files have one, which is skipped (train.tsv,
  dev_mismatched.tsv, test_mismatched.tsv).
  """

  dev = Layout("dev_mismatched.tsv", "dev_mismatched", 8, 9, -1, guid_column=0)
  test = Layout("test_mismatched.tsv", "test", 8, 9, guid_column=0)


class MrpcProcessor(LayoutProcessor):
  """Microsoft Research paraphrases: two sentences -> same meaning or not.

  Header row: train.tsv, dev.tsv and test.tsv have one, which is skipped.
  """

  train = Layout("train.tsv", "train", 3, 4, 0)
  dev = Layout("dev.tsv", "dev", 3, 4, 0)
  test = Layout("test.tsv", "test", 3, 4)


class ColaProcessor(LayoutProcessor):
  """Linguistic acceptability: sentence -> correct English or not.

  Header row: only test.tsv has one, which is skipped; train.tsv and dev.tsv
  begin with an example.
  """

  train = Layout("train.tsv", "train", 3, None, 1, has_header=False)
  dev = Layout("dev.tsv", "dev", 3, None, 1, has_header=False)
  test = Layout("test.tsv", "test", 1)


class Sst2Processor(LayoutProcessor):
  """Stanford sentiment: phrase -> negative or positive.

  Header row: train.tsv, dev.tsv and test.tsv have one, which is skipped.
  """

  train = Layout("train.tsv", "train", 0, None, 1)
  dev = Layout("dev.tsv", "dev", 0, None, 1)
  test = Layout("test.tsv", "test", 1)


class QqpProcessor(LayoutProcessor):
  """Quora question pairs: two questions -> same or not.

  Header row: train.tsv, dev.tsv and test.tsv have one, which is skipped. Some
  rows of GLUE's own files are cut short: those with labels are left out, with
  one warning; in test.tsv, where each row needs its prediction, they are an
  error.
  """

  train = Layout("train.tsv", "train", 3, 4, 5)
  dev = Layout("dev.tsv", "dev", 3, 4, 5)
  test = Layout("test.tsv", "test", 1, 2)
  skips_short_rows = True


class QnliProcessor(LayoutProcessor):
  """Question, sentence -> whether the sentence answers the question.

  Header row: train.tsv, dev.tsv and test.tsv have one, which is skipped.
  """

  labels = _ENTAILMENT_LABELS
  train = Layout("train.tsv", "train", 1, 2, 3)
  dev = Layout("dev.tsv", "dev", 1, 2, 3)
  test = Layout("test.tsv", "test", 1, 2)


class RteProcessor(QnliProcessor):
  """Recognizing textual entailment: two texts -> whether b follows from a.

  Header row: train.tsv, dev.tsv and test.tsv have one, which is skipped.
  """


class WnliProcessor(QnliProcessor):
  """Winograd schemas: two sentences -> whether b follows from a.

  Header row: train.tsv, dev.tsv and test.tsv have one, which is skipped.
  """

  labels = ("0", "1")


class StsbProcessor(LayoutProcessor):
  """Semantic similarity: two sentences -> a number from 0 to 5 (regression).

  Header row: train.tsv, dev.tsv and test.tsv have one, which is skipped.
  """

  label_kind = REGRESSION
  labels = ()
  train = Layout("train.tsv", "train", 7, 8, 9)
  dev = Layout("dev.tsv", "dev", 7, 8, 9)
  test = Layout("test.tsv", "test", 7, 8)


# --task_name, in lower case.
PROCESSORS: Dict[str, Type[LayoutProcessor]] = {
    "cola": ColaProcessor, "mnli": MnliProcessor,
    "mnli-mm": MnliMismatchedProcessor, "mrpc": MrpcProcessor,
    "qnli": QnliProcessor, "qqp": QqpProcessor, "rte": RteProcessor,
    "sst-2": Sst2Processor, "sts-b": StsbProcessor, "wnli": WnliProcessor,
    "xnli": XnliProcessor}


def describe_header_rows() -> str:
  """Says for a help text in which files the first line is skipped."""
  without = []
  for name, processor_class in sorted(PROCESSORS.items()):
    processor = processor_class()
    layouts = [processor.train, processor.dev, processor.test]
    files = [layout.file_name for layout in layouts
             if layout is not None and not layout.has_header]
    if files:
      without.append("%s of %s" % (" and ".join(files), name))
  return ("The first line of each file is a header and is skipped, except in "
          "%s." % "; ".join(without))
