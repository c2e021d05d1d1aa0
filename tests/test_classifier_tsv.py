"""--task_name=tsv: files of users, with named columns."""
import json
import logging

import pytest

from multigpu.errors import UserError
from tasks import classifier_tsv
from tasks.classifier_tsv import TsvProcessor, TsvSettings


def write(folder, name, *lines):
  path = folder / name
  path.write_bytes("".join(line + "\n" for line in lines).encode("utf-8"))
  return str(path)


def read_train(folder, **settings):
  return TsvProcessor(TsvSettings(**settings)).get_train_examples(str(folder))


def as_tuples(examples):
  return [(example.guid, example.text_a, example.text_b, example.label)
          for example in examples]


def test_named_columns(tmp_path):
  write(tmp_path, "train.tsv", "kind\tid\tbody\ttitle",
        'x\t1\t"quoted\tone', "y\t2\ttwo\t2")
  examples = read_train(tmp_path, text_a_column="title", label_column="kind")
  assert as_tuples(examples) == [("train-1", "one", None, "x"),
                                 ("train-2", "2", None, "y")]
  examples = read_train(tmp_path, text_a_column="title", text_b_column="body",
                        label_column="kind")
  assert examples[0].text_b == '"quoted'


def test_csv_quoting(tmp_path):
  write(tmp_path, "train.csv", '"text","label"', '"a ""b"", c",x',
        '"two', 'lines",y', "", "plain,x")
  examples = read_train(tmp_path)
  assert as_tuples(examples) == [
      ("train-1", 'a "b", c', None, "x"), ("train-2", "two\nlines", None, "y"),
      ("train-5", "plain", None, "x")]


@pytest.mark.parametrize("header, texts", [
    ("index,question,sentence,label", (1, 2)),
    ("index,sentence1,sentence2,label", (1, 2)),
    ("label,Text", (1, None)), ("text,Category", (0, None)),
    (" text ,label ", (0, None)), ("\ufeffsentence,label", (0, None)),
    ("label,question", (1, None)), ("text_b,text_a,label", (1, 0)),
    ("text_a,label", (0, None)), ("hypothesis,premise,label", (1, 0)),
])
def test_guessed_columns(tmp_path, header, texts):
  num_columns = header.count(",") + 1
  rows = [",".join(["%s%d" % (row, column) for column in range(num_columns)])
          for row in "xy"]
  write(tmp_path, "train.csv", header, *rows)
  example = read_train(tmp_path)[0]
  assert (example.text_a, example.text_b) == tuple(
      None if column is None else "x%d" % column for column in texts)


def test_guessed_columns_are_logged_and_kept(tmp_path, caplog):
  write(tmp_path, "train.tsv", "question\tsentence\tlabel", "a\tb\t0",
        "c\td\t1")
  write(tmp_path, "dev.tsv", "question\ttext\tlabel", "a\tb\t0")
  processor = TsvProcessor()
  with caplog.at_level(logging.INFO):
    processor.get_train_examples(str(tmp_path))
  assert caplog.records[-1].getMessage().endswith(
      "text_a in column 'question', text_b in column 'sentence', label in "
      "column 'label'")
  # The pair of the training data must not become a single text here.
  with pytest.raises(UserError, match="--text_b_column=sentence, but there is "
                     "no such column"):
    processor.get_dev_examples(str(tmp_path))


@pytest.mark.parametrize("header, settings, wanted", [
    ("a,b", {}, "--text_a_column=NAME.*here: 'a', 'b'"),
    ("text,b", {}, "--label_column=NAME.*here: 'text', 'b'"),
    ("text,label", {"text_a_column": "Text"},
     "--text_a_column=Text, but there is no such column.*'text', 'label'"),
    ("text,label", {"label_column": "kind"},
     "--label_column=kind, but there is no such column"),
    ("text,label", {"text_a_column": "text", "text_b_column": "more"},
     "--text_b_column=more, but there is no such column"),
    ("text,label,text", {}, "--text_a_column=text, but there are 2 such"),
    ("text;label", {}, "--text_a_column=NAME.*here: 'text;label'"),
])
def test_columns_that_are_not_there(tmp_path, header, settings, wanted):
  path = write(tmp_path, "train.csv", header, "x,y")
  with pytest.raises(UserError, match=wanted) as caught:
    read_train(tmp_path, **settings)
  assert str(caught.value).startswith(path + ", line 1: ")


def test_second_column_alone_is_refused():
  with pytest.raises(UserError, match="without --text_a_column"):
    TsvProcessor(TsvSettings(text_b_column="text"))


@pytest.mark.parametrize("names, wanted", [
    (["b", "a", "Z"], ["Z", "a", "b"]),
    (["10", "9", "-1", "2.5"], ["-1", "2.5", "9", "10"]),
    (["1.0", "1", "0"], ["0", "1", "1.0"]),
    (["10", "9", "x"], ["10", "9", "x"]),
    (["10", "9", "1_0"], ["10", "1_0", "9"]),
    (["10", "9", "nan"], ["10", "9", "nan"]),
])
def test_order_of_labels(names, wanted):
  assert classifier_tsv.sort_labels(names) == wanted
  assert classifier_tsv.sort_labels(reversed(names)) == wanted


def test_labels_are_found_in_the_training_data(tmp_path):
  write(tmp_path, "train.tsv", "text\tlabel", "a\tz ", "b\t y", "c\tz")
  processor = TsvProcessor()
  with pytest.raises(ValueError, match="no labels yet"):
    processor.get_labels()
  assert processor.find_labels(str(tmp_path)) == ["y", "z"]
  assert processor.get_label_set() == ("classes", ("y", "z"))


def test_given_labels_hold(tmp_path):
  path = write(tmp_path, "train.tsv", "text\tlabel", "a\ty", "b\tx")
  assert TsvProcessor(labels=["y", "x"]).find_labels(str(tmp_path)) == [
      "y", "x"]
  with pytest.raises(UserError, match="line 3: column 'label': unknown label "
                     "'x', wanted one of: 'y', 'z'") as caught:
    TsvProcessor(labels=["y", "z"]).get_train_examples(str(tmp_path))
  assert str(caught.value).startswith(path)


def test_dev_labels_must_be_known(tmp_path):
  write(tmp_path, "train.tsv", "text\tlabel", "a\ty", "b\tz")
  write(tmp_path, "dev.tsv", "text\tlabel", "a\tz", "b\tx")
  processor = TsvProcessor()
  processor.find_labels(str(tmp_path))
  with pytest.raises(UserError, match="dev.tsv, line 3: column 'label': "
                     "unknown label 'x', wanted one of: 'y', 'z'"):
    processor.get_dev_examples(str(tmp_path))


@pytest.mark.parametrize("lines", [["text", "a", "b"],
                                   ["label\ttext", "?\ta", "\tb"]])
def test_test_files_may_lack_labels(tmp_path, lines):
  write(tmp_path, "test.tsv", *lines)
  processor = TsvProcessor(labels=["y", "z"])
  assert as_tuples(processor.get_test_examples(str(tmp_path))) == [
      ("test-1", "a", None, "y"), ("test-2", "b", None, "y")]


def test_several_labels(tmp_path):
  write(tmp_path, "train.csv", "text,labels", 'a,"x, y"', "b,", 'c,"z,x"')
  write(tmp_path, "test.csv", "text", "a")
  processor = TsvProcessor(TsvSettings(multi_label=True))
  examples = processor.get_train_examples(str(tmp_path))
  assert [example.label for example in examples] == ["x, y", "", "z,x"]
  assert processor.get_label_set() == ("multi_label", ("x", "y", "z"))
  (example,) = processor.get_test_examples(str(tmp_path))
  assert example.label == ""


@pytest.mark.parametrize("rows, multi_label, wanted", [
    (["a,x", "b,"], False, "line 3: no label in column 'label', in 'b"),
    (["a,x", "b,x"], False, "holds only the label 'x', wanted at least two"),
    (["a,", "b,"], True, "holds no label, wanted at least one label"),
    (['a,"x', 'y"', "b,z"], False, "label 'x.ny' .*has a line break"),
    (["a,x", "b"], False, "line 3: 1 columns, wanted 2 .*'text', 'label'"),
    (["a,x", "b, c,y"], False, "line 3: 3 columns, wanted 2 .*unquoted comma"),
    (["a,x", '"b"c,y'], False, "line 3: not csv"),
    (["a,x", '"b,y', "c,z"], False, "line 3: not csv .*never closed"),
    ([], False, "train.csv holds 0 examples"),
])
def test_wrong_rows(tmp_path, rows, multi_label, wanted):
  path = write(tmp_path, "train.csv", "text,label", *rows)
  with pytest.raises(UserError, match=wanted) as caught:
    read_train(tmp_path, multi_label=multi_label)
  assert path in str(caught.value)


def test_open_quote_that_swallows_the_file(tmp_path):
  write(tmp_path, "train.csv", "text,label", '"a,x',
        *["some text,y"] * 20000)
  with pytest.raises(UserError, match="line 2: not csv .*field larger than"):
    read_train(tmp_path)


@pytest.mark.parametrize("name", ["train.csv", "train.tsv"])
@pytest.mark.parametrize("byte, wanted", [(b"\xe9", "byte 0xe9 is not UTF-8"),
                                          (b"\0", "a NUL byte")])
def test_bytes_that_are_no_text(tmp_path, name, byte, wanted):
  separator = b"," if name.endswith("csv") else b"\t"
  (tmp_path / name).write_bytes(
      separator.join([b"text", b"label\na", b"x\n" + byte, b"y\n"]))
  with pytest.raises(UserError, match="%s, line 3: %s" % (name, wanted)):
    read_train(tmp_path)


@pytest.mark.parametrize("name", ["dev", "test"])
def test_zero_examples(tmp_path, name):
  write(tmp_path, name + ".csv", "text,label")
  processor = TsvProcessor(labels=["x", "y"])
  with pytest.raises(UserError, match="%s.csv holds 0 examples" % name):
    getattr(processor, "get_%s_examples" % name)(str(tmp_path))
  (tmp_path / (name + ".csv")).write_bytes(b"")
  with pytest.raises(UserError, match="%s.csv holds 0 examples" % name):
    getattr(processor, "get_%s_examples" % name)(str(tmp_path))


def test_which_file(tmp_path):
  with pytest.raises(UserError, match="neither dev.csv nor dev.tsv.*--do_eval"):
    TsvProcessor(labels=["x", "y"]).get_dev_examples(str(tmp_path))
  write(tmp_path, "train.csv", "text,label")
  write(tmp_path, "train.tsv", "text\tlabel")
  with pytest.raises(UserError, match="holds train.csv and train.tsv"):
    read_train(tmp_path)


def test_labels_file(tmp_path):
  path = str(tmp_path / "labels.txt")
  labels = ["z", "a b", "\u4e2d\u2028\u6587", "\"q\"", "x\ty"]
  classifier_tsv.write_labels(path, labels)
  with open(path, encoding="utf-8", newline="\n") as reader:
    assert reader.read() == "".join(label + "\n" for label in labels)
  assert classifier_tsv.read_labels(path) == labels


def test_wrong_labels_files(tmp_path):
  with pytest.raises(UserError, match="cannot read .*labels.txt"):
    classifier_tsv.read_labels(str(tmp_path / "labels.txt"))
  path = write(tmp_path, "labels.txt", "a", "b", "a")
  with pytest.raises(UserError, match="labels.txt, line 3: label 'a' is there "
                     "twice"):
    classifier_tsv.read_labels(path)
  with pytest.raises(UserError, match="holds no labels"):
    classifier_tsv.read_labels(write(tmp_path, "labels.txt", ""))


def test_real_banking77(shared, tmp_path):
  folder = shared / "data" / "banking77"
  processor = TsvProcessor()
  examples = processor.get_train_examples(str(folder))
  assert len(examples) == 10003
  wanted = json.loads((folder / "categories.json").read_text())
  assert processor.get_labels() == sorted(wanted)
  assert len(processor.get_test_examples(str(folder))) == 3080
  # Its test file has the labels: as dev.csv it scores.
  (tmp_path / "dev.csv").write_bytes((folder / "test.csv").read_bytes())
  examples = processor.get_dev_examples(str(tmp_path))
  assert len(examples) == 3080 and examples[1].text_a.startswith("I still have")


def test_real_pairs(shared):
  for task, size in (("qnli", 4356), ("wnli", 635)):
    processor = TsvProcessor()
    examples = processor.get_train_examples(str(shared / "data" / task))
    assert len(examples) == size
    assert all(example.text_b for example in examples)
    assert len(processor.get_labels()) == 2
