"""The layouts of XNLI and GLUE: what is read, what is refused and how."""
import logging
import os

import pytest

from multigpu.errors import UserError
from tasks import classifier_data, classifier_processors
from tasks.classifier_processors import PROCESSORS

HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
MRPC_ROW = "1\t7\t8\tthe boat\ta boat"


def write(folder, name, *lines, end="\n"):
  path = folder.joinpath(*name.split("/"))
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes("".join(line + end for line in lines).encode("utf-8"))
  return str(path)


def cells(count, **by_column):
  """A row of `count` cells: c0, c1, ... but for those given as c<number>."""
  return "\t".join(by_column.get("c%d" % index, "c%d" % index)
                   for index in range(count))


def as_tuples(examples):
  return [(example.guid, example.text_a, example.text_b, example.label)
          for example in examples]


# Task -> labels, then per set: file, lines, the examples that they give.
SETS = {
    "cola": (["0", "1"], [
        ("train.tsv", ["gj04\t1\t\tThe boat sank.", "gj04\t0\t*\tBoat the."],
         [("train-0", "The boat sank.", None, "1"),
          ("train-1", "Boat the.", None, "0")]),
        ("dev.tsv", ["gj04\t0\t*\tBoat the."],
         [("dev-0", "Boat the.", None, "0")]),
        ("test.tsv", ["index\tsentence", "0\tThe boat."],
         [("test-1", "The boat.", None, "0")])]),
    "mnli": (["contradiction", "entailment", "neutral"], [
        ("train.tsv", [cells(12), cells(12, c0="41", c11="neutral")],
         [("train-41", "c8", "c9", "neutral")]),
        ("dev_matched.tsv", [cells(16), cells(16, c0="5", c15="entailment")],
         [("dev_matched-5", "c8", "c9", "entailment")]),
        ("test_matched.tsv", [cells(10), cells(10, c0="6")],
         [("test-6", "c8", "c9", "contradiction")])]),
    "mnli-mm": (["contradiction", "entailment", "neutral"], [
        ("train.tsv", [cells(12), cells(12, c0="41", c11="neutral")],
         [("train-41", "c8", "c9", "neutral")]),
        ("dev_mismatched.tsv", [cells(16), cells(16, c0="5", c15="neutral")],
         [("dev_mismatched-5", "c8", "c9", "neutral")]),
        ("test_mismatched.tsv", [cells(10), cells(10, c0="6")],
         [("test-6", "c8", "c9", "contradiction")])]),
    "mrpc": (["0", "1"], [
        ("train.tsv", [HEADER, MRPC_ROW],
         [("train-1", "the boat", "a boat", "1")]),
        ("dev.tsv", [HEADER, MRPC_ROW], [("dev-1", "the boat", "a boat", "1")]),
        ("test.tsv", ["index\t#1 ID\t#2 ID\t#1 String\t#2 String", MRPC_ROW],
         [("test-1", "the boat", "a boat", "0")])]),
    "qnli": (["entailment", "not_entailment"], [
        (name, [cells(4), cells(4, c3="not_entailment")],
         [(name[:-4] + "-1", "c1", "c2", "not_entailment")])
        for name in ("train.tsv", "dev.tsv")] + [
        ("test.tsv", [cells(3), cells(3)],
         [("test-1", "c1", "c2", "entailment")])]),
    "qqp": (["0", "1"], [
        (name, [cells(6), cells(6, c5="1")],
         [(name[:-4] + "-1", "c3", "c4", "1")])
        for name in ("train.tsv", "dev.tsv")] + [
        ("test.tsv", [cells(3), cells(3)], [("test-1", "c1", "c2", "0")])]),
    "sst-2": (["0", "1"], [
        (name, ["sentence\tlabel", "a fine boat \t1"],
         [(name[:-4] + "-1", "a fine boat ", None, "1")])
        for name in ("train.tsv", "dev.tsv")] + [
        ("test.tsv", ["index\tsentence", "0\ta boat"],
         [("test-1", "a boat", None, "0")])]),
    "sts-b": ([], [
        (name, [cells(10), cells(10, c9="3.800")],
         [(name[:-4] + "-1", "c7", "c8", "3.800")])
        for name in ("train.tsv", "dev.tsv")] + [
        ("test.tsv", [cells(9), cells(9)], [("test-1", "c7", "c8", "0")])]),
    "xnli": (["contradiction", "entailment", "neutral"], [
        ("multinli/multinli.train.zh.tsv",
         ["premise\thypo\tlabel", "ab\tcd\tcontradictory", "ef\tgh\tneutral"],
         [("train-1", "ab", "cd", "contradiction"),
          ("train-2", "ef", "gh", "neutral")]),
        ("xnli.dev.tsv",
         [cells(8, c0="language"), cells(8, c0="de", c1="neutral"),
          cells(8, c0="zh", c1="entailment")],
         [("dev-2", "c6", "c7", "entailment")]),
        None]),
}
SETS["rte"] = SETS["qnli"]
SETS["wnli"] = (["0", "1"], [
    (name, [row.replace("not_entailment", "1") for row in rows],
     [(guid, text_a, text_b, "0" if name == "test.tsv" else "1")
      for guid, text_a, text_b, _ in examples])
    for name, rows, examples in SETS["qnli"][1]])


def test_each_task_is_tested():
  assert set(SETS) == set(PROCESSORS)


@pytest.mark.parametrize("task", sorted(SETS))
def test_layouts(tmp_path, task, caplog):
  labels, (train, dev, test) = SETS[task]
  processor = PROCESSORS[task]()
  assert processor.get_labels() == labels
  for entry, read in ((train, processor.get_train_examples),
                      (dev, processor.get_dev_examples),
                      (test, processor.get_test_examples)):
    if entry is None:
      continue
    name, lines, examples = entry
    write(tmp_path, name, *lines)
    assert as_tuples(read(str(tmp_path))) == examples
  assert not caplog.records


@pytest.mark.parametrize("task", sorted(SETS))
def test_labels_suit_the_features(task):
  label_set = PROCESSORS[task]().get_label_set()
  kind = (classifier_data.REGRESSION if task == "sts-b"
          else classifier_data.CLASSES)
  assert label_set == (kind, tuple(SETS[task][0]))


def test_xnli_has_no_test_set(tmp_path):
  with pytest.raises(UserError, match="--do_predict.*no test set.*xnli.dev"):
    PROCESSORS["xnli"]().get_test_examples(str(tmp_path))


def test_xnli_in_another_language(tmp_path):
  write(tmp_path, "multinli/multinli.train.de.tsv", "header",
        "Boot\tSchiff\tneutral")
  write(tmp_path, "xnli.dev.tsv", cells(8), cells(8, c0="zh", c1="neutral"))
  processor = PROCESSORS["xnli"]()
  processor.language = "de"
  (example,) = processor.get_train_examples(str(tmp_path))
  assert example.text_b == "Schiff"
  with pytest.raises(UserError, match="xnli.dev.tsv holds 0 examples.*'de'"):
    processor.get_dev_examples(str(tmp_path))


def test_real_qnli_and_wnli(shared):
  for task, sizes in (("qnli", [4356, 1107]), ("wnli", [635, 71, 146])):
    processor = PROCESSORS[task]()
    folder = str(shared / "data" / task)
    reads = [processor.get_train_examples, processor.get_dev_examples,
             processor.get_test_examples][:len(sizes)]
    assert [len(read(folder)) for read in reads] == sizes


def test_google_example_files(shared):
  folder = shared / "golden" / "classifier_features" / "e2e" / "data"
  processor = PROCESSORS["mrpc"]()
  assert len(processor.get_dev_examples(str(folder))) == 11
  assert len(processor.get_test_examples(str(folder))) == 11


@pytest.mark.parametrize("count", [10, 8, 1])
def test_short_rows_with_the_label_at_the_end(tmp_path, count):
  """A row that ends with the text must not have that text as its label."""
  write(tmp_path, "train.tsv", cells(12), cells(count, c9="neutral"))
  with pytest.raises(UserError, match="line 2: %d columns, wanted" % count):
    PROCESSORS["mnli"]().get_train_examples(str(tmp_path))


def test_short_rows_of_qqp(tmp_path, caplog):
  write(tmp_path, "train.tsv", cells(6), cells(4), cells(6, c5="0"), cells(2))
  (example,) = PROCESSORS["qqp"]().get_train_examples(str(tmp_path))
  assert example.guid == "train-2"
  (record,) = caplog.records
  assert record.getMessage().endswith(
      "read 3 rows, kept 1, skipped 2: fewer than 6 columns (line 2, 4)")
  # Each row to predict needs its line in the results.
  write(tmp_path, "test.tsv", cells(3), cells(2), cells(3))
  with pytest.raises(UserError, match="line 2: 2 columns, wanted at least 3"):
    PROCESSORS["qqp"]().get_test_examples(str(tmp_path))


def test_labels_of_a_test_file_do_not_matter(tmp_path):
  write(tmp_path, "test.tsv", HEADER, "?" + MRPC_ROW[1:])
  (example,) = PROCESSORS["mrpc"]().get_test_examples(str(tmp_path))
  assert example.label == "0"


@pytest.mark.parametrize("score", ["high", "", "nan"])
def test_scores_must_be_numbers(tmp_path, score):
  write(tmp_path, "train.tsv", cells(10), cells(10, c9=score))
  with pytest.raises(UserError, match="line 2: column 10: label %r, wanted a "
                     "number" % score):
    PROCESSORS["sts-b"]().get_train_examples(str(tmp_path))


@pytest.mark.parametrize("task, row", [
    ("sts-b", cells(10, c9="2.5")), ("mnli", cells(12, c11="neutral")),
    ("xnli", None)])
def test_no_header_in_other_tasks(tmp_path, task, row, caplog):
  name = "train.tsv"
  if task == "xnli":
    name, row = "multinli/multinli.train.zh.tsv", "a\tb\tcontradictory"
  write(tmp_path, name, row, row)
  assert len(PROCESSORS[task]().get_train_examples(str(tmp_path))) == 1
  assert "looks like an example" in caplog.records[0].getMessage()


def test_processors_of_users(tmp_path):
  """What google-research/bert lets users derive from and call."""
  class MyProcessor(classifier_processors.DataProcessor):

    def get_train_examples(self, data_dir):
      path = os.path.join(data_dir, "mine.tsv")
      return [classifier_data.InputExample(line[0], line[1])
              for line in self._read_tsv(path)]

    def get_labels(self):
      return ["a", "b"]

  write(tmp_path, "mine.tsv", 'x\t"one"', "", "y\ttwo")
  processor = MyProcessor()
  examples = processor.get_train_examples(str(tmp_path))
  assert as_tuples(examples) == [("x", '"one"', None, None),
                                 ("y", "two", None, None)]
  assert processor.get_label_set() == ("classes", ("a", "b"))
  rows = MyProcessor._read_tsv(str(tmp_path / "mine.tsv"), quotechar='"')
  assert rows == [["x", "one"], ["y", "two"]]
  for method in (processor.get_dev_examples, processor.get_test_examples):
    with pytest.raises(NotImplementedError):
      method(str(tmp_path))


def test_help_names_the_files_without_header(caplog):
  with caplog.at_level(logging.WARNING):
    text = classifier_processors.describe_header_rows()
  assert text == ("The first line of each file is a header and is skipped, "
                  "except in train.tsv and dev.tsv of cola.")


@pytest.mark.parametrize("task", sorted(PROCESSORS))
def test_each_processor_says_which_headers_are_skipped(task):
  assert "Header row:" in PROCESSORS[task].__doc__
