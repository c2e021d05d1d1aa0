"""tasks/classifier_rows.py, through the tasks: files that are not as wanted."""
import pytest

from multigpu.errors import UserError
from tasks.classifier_processors import PROCESSORS
from tasks.classifier_tsv import TsvProcessor

HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
MRPC_ROW = "1\t7\t8\tthe boat\ta boat"


def write(folder, name, *lines, end="\n"):
  path = folder.joinpath(*name.split("/"))
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes("".join(line + end for line in lines).encode("utf-8"))
  return str(path)


# Real users' files.


def read_all(task, folder):
  processor = PROCESSORS[task]()
  return [read(str(folder)) for read in (processor.get_train_examples,
                                         processor.get_dev_examples,
                                         processor.get_test_examples)]


def test_case_blank_lines(shared, caplog):
  sets = read_all("mrpc", shared / "cases" / "11-tsv-blank-lines")
  assert [len(examples) for examples in sets] == [6, 6, 6]
  messages = [record.getMessage() for record in caplog.records]
  assert len(messages) == 3
  assert messages[0].endswith(
      "train.tsv: read 10 rows, kept 7, skipped 3: blank (line 5, 9, 10)")


def test_case_no_header(shared, caplog):
  sets = read_all("mrpc", shared / "cases" / "14-tsv-no-header-loses-a-row")
  assert [len(examples) for examples in sets] == [2, 2, 2]
  messages = [record.getMessage() for record in caplog.records]
  assert len(messages) == 3
  for message, name in zip(messages, ("train.tsv", "dev.tsv", "test.tsv")):
    assert name + ", line 1: skipped as the header" in message
    assert "(column 1 holds '1')" in message


def test_case_bad_utf8(shared):
  with pytest.raises(UserError, match="train.tsv, line 5: byte 0xe9 is not"):
    read_all("mrpc", shared / "cases" / "16-tsv-bad-utf8-byte")


def test_case_quotes_are_text(shared):
  for examples in read_all("mrpc",
                           shared / "cases" / "17-tsv-quotes-are-text"):
    texts = [(example.text_a, example.text_b) for example in examples]
    assert len(texts) == 6
    assert texts[:3] == [('"the boat is blue', "the boat"),
                         ('a 12" note', '"'), ("it's", '"x""y"')]


def test_case_empty_text(shared):
  for examples in read_all("mrpc", shared / "cases" / "19-tsv-empty-text"):
    assert len(examples) == 7
    assert (examples[0].text_a, examples[0].text_b) == ("", "")
    assert (examples[1].text_a, examples[1].text_b) == ("the boat", "")


@pytest.mark.parametrize("name", ["train", "dev", "test"])
def test_case_zero_examples(shared, name):
  folder = shared / "cases" / "21-tsv-zero-examples"
  read = getattr(PROCESSORS["mrpc"](), "get_%s_examples" % name)
  with pytest.raises(UserError, match="%s.tsv holds 0 examples" % name):
    read(str(folder))


# The same kinds of mistakes in self-written files.


@pytest.mark.parametrize("content", [b"", b"\n", b"\xef\xbb\xbf", b" \r\n"])
@pytest.mark.parametrize("task", ["mrpc", "cola"])
def test_empty_files(tmp_path, task, content):
  (tmp_path / "train.tsv").write_bytes(content)
  with pytest.raises(UserError, match="train.tsv holds 0 examples"):
    PROCESSORS[task]().get_train_examples(str(tmp_path))


def test_missing_file(tmp_path):
  with pytest.raises(UserError, match="cannot read .*train.tsv.*--data_dir"):
    PROCESSORS["mrpc"]().get_train_examples(str(tmp_path))


def test_short_rows(tmp_path):
  path = write(tmp_path, "train.tsv", HEADER, MRPC_ROW, "1\t7\t8\tthe boat")
  with pytest.raises(UserError) as caught:
    PROCESSORS["mrpc"]().get_train_examples(str(tmp_path))
  assert str(caught.value).startswith(
      path + ", line 3: 4 columns, wanted at least 5 (column 5 is the second "
      "text), in '1\\t7\\t8\\tthe boat'")


def test_unknown_labels(tmp_path):
  path = write(tmp_path, "dev.tsv", HEADER, MRPC_ROW, "2" + MRPC_ROW[1:])
  with pytest.raises(UserError) as caught:
    PROCESSORS["mrpc"]().get_dev_examples(str(tmp_path))
  assert str(caught.value).startswith(
      path + ", line 3: column 1: unknown label '2', wanted one of: '0', '1'")


def test_header_where_none_belongs(tmp_path):
  write(tmp_path, "train.tsv", "source\tlabel\tmark\tsentence", "a\t1\t\tb")
  with pytest.raises(UserError, match="line 1: column 2: unknown label 'label'"
                     ".*train.tsv has no header row"):
    PROCESSORS["cola"]().get_train_examples(str(tmp_path))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_and_byte_order_mark(tmp_path, end):
  write(tmp_path, "train.tsv", "\ufeffsource\t1\t\tone\u2028line\rstill",
        end=end)
  (example,) = PROCESSORS["cola"]().get_train_examples(str(tmp_path))
  assert example.text_a == "one\u2028line\rstill"


def test_last_line_without_end(tmp_path):
  (tmp_path / "train.tsv").write_bytes(b"s\t1\t\tone\ns\t0\t\ttwo")
  examples = PROCESSORS["cola"]().get_train_examples(str(tmp_path))
  assert [example.text_a for example in examples] == ["one", "two"]


def test_tabs_alone_are_empty_cells(tmp_path, caplog):
  write(tmp_path, "test.tsv", HEADER, "\t\t\t\t", MRPC_ROW)
  examples = PROCESSORS["mrpc"]().get_test_examples(str(tmp_path))
  assert [example.text_a for example in examples] == ["", "the boat"]
  assert not caplog.records


def test_utf16_is_named(tmp_path):
  (tmp_path / "train.tsv").write_bytes("s\t1\t\tone\n".encode("utf-16-le"))
  with pytest.raises(UserError, match="train.tsv, line 1: a NUL byte.*UTF-16"):
    PROCESSORS["cola"]().get_train_examples(str(tmp_path))


def test_line_numbers_across_blocks(tmp_path, monkeypatch):
  monkeypatch.setattr("tasks.classifier_rows._BLOCK_BYTES", 16)
  lines = ["s\t1\t\ttext %d" % number for number in range(20)]
  write(tmp_path, "train.tsv", *lines)
  examples = PROCESSORS["cola"]().get_train_examples(str(tmp_path))
  assert [(example.guid, example.text_a) for example in examples] == [
      ("train-%d" % number, "text %d" % number) for number in range(20)]
  with open(str(tmp_path / "train.tsv"), "ab") as stream:
    stream.write(b"s\t1\t\t\xff\n")
  with pytest.raises(UserError, match="line 21: byte 0xff"):
    PROCESSORS["cola"]().get_train_examples(str(tmp_path))


def test_many_blank_lines_are_cut_short(tmp_path, caplog):
  write(tmp_path, "train.tsv", *(["s\t1\t\tone"] + [""] * 12))
  PROCESSORS["cola"]().get_train_examples(str(tmp_path))
  assert caplog.records[0].getMessage().endswith(
      "skipped 12: blank (line 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more)")


def test_strict(tmp_path):
  """What is a warning becomes an error."""
  for lines, message in (
      ([HEADER, MRPC_ROW, "", MRPC_ROW],
       "train.tsv: read 4 rows, kept 3, skipped 1: blank .line 3.*--strict"),
      ([MRPC_ROW, MRPC_ROW], "train.tsv, line 1: skipped as the header")):
    write(tmp_path, "train.tsv", *lines)
    processor = PROCESSORS["mrpc"]()
    assert processor.get_train_examples(str(tmp_path))
    processor.strict = True
    with pytest.raises(UserError, match=message):
      processor.get_train_examples(str(tmp_path))
  write(tmp_path, "train.tsv", "\t".join("abcdef"), "1\t7\t8",
        "1\t2\t3\tone\ttwo\t1")
  processor = PROCESSORS["qqp"]()
  processor.strict = True
  with pytest.raises(UserError, match="skipped 1: fewer than 6 columns"):
    processor.get_train_examples(str(tmp_path))


def test_rows_with_more_columns_than_the_header(tmp_path, caplog):
  write(tmp_path, "train.tsv", HEADER, MRPC_ROW, MRPC_ROW + "\tof 18")
  assert len(PROCESSORS["mrpc"]().get_train_examples(str(tmp_path))) == 2
  (record,) = caplog.records
  assert "1 rows have more columns than the 5 of the header (line 3)" in (
      record.getMessage())


@pytest.mark.parametrize("name", ["train.tsv", "train.csv"])
def test_carriage_returns_alone(tmp_path, name):
  separator = "\t" if name.endswith("tsv") else ","
  (tmp_path / name).write_bytes(
      "text,label\ra,x\rb,y\r".replace(",", separator).encode())
  with pytest.raises(UserError, match=name + ": its lines end with carriage"):
    TsvProcessor().get_train_examples(str(tmp_path))


@pytest.mark.parametrize("name, separator, character", [
    ("train.tsv", "a comma", ","), ("train.csv", "a tab", "\t"),
    ("train.csv", "a semicolon", ";")])
def test_another_separator(tmp_path, name, separator, character):
  write(tmp_path, name, "text" + character + "label", "a" + character + "1")
  with pytest.raises(UserError, match=name + ", line 1: .*Is %s the separator"
                     % separator):
    TsvProcessor().get_train_examples(str(tmp_path))
