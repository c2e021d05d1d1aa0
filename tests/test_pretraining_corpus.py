"""Reading text and dealing with files, for pre-training data."""
import itertools
import json
import os

import pytest

import pretraining_samples as samples
from multigpu.errors import UserError
from tasks import pretraining_corpus as corpus
from tasks import pretraining_files as files
from tasks import pretraining_pipeline as pipeline
from tasks.pretraining_pairs import InstanceSettings
import tokenization


# Reading.


def test_ids_are_those_of_the_tokenizer(shared):
  strings = json.loads(
      (shared / "golden" / "tokenizer" / "strings.json").read_text())
  texts = [entry["text"] if isinstance(entry, dict) else entry
           for entry in strings]
  for name, do_lower_case in (("uncased", True), ("cased", False),
                              ("chinese", True), ("multi_cased", False)):
    vocab_file = str(shared / "data" / "vocab" / name / "vocab.txt")
    vocab = corpus.load_vocabulary(vocab_file)
    assert vocab == dict(tokenization.load_vocab(vocab_file))
    assert list(vocab) == list(tokenization.load_vocab(vocab_file))
    full = tokenization.FullTokenizer(vocab_file, do_lower_case)
    tokenizer = corpus.IdTokenizer(vocab, do_lower_case)
    for text in texts + texts[:20]:
      assert tokenizer(text) == full.convert_tokens_to_ids(full.tokenize(text))


def test_lines_do_not_depend_on_the_blocks(tmp_path):
  content = ("one\r\n\ntwo\u2028three\n  \n\nfour " + "five " * 30
             + "\n\x0bsix\x0c\nthe end").encode("utf-8")
  path = str(tmp_path / "text")
  with open(path, "wb") as writer:
    writer.write(content)
  expected = [line.strip() for line in content.decode("utf-8").split("\n")]
  for size in (1, 2, 7, 1000):
    reader = corpus.CorpusReader([path], size)
    blocks = list(reader)
    assert list(itertools.chain.from_iterable(
        map(corpus.decode_lines, blocks))) == expected
    assert b"".join(block.content for block in blocks) == content


def test_bad_byte_is_named_with_its_line(tmp_path):
  path = str(tmp_path / "text")
  with open(path, "wb") as writer:
    writer.write(b"fine\n" * 41 + b"caf\xe9 is bad\n" + b"fine\n" * 5)
  for size in (1, 60, 1000):
    with pytest.raises(UserError, match=r"text, line 42: byte 0xe9"):
      list(map(corpus.decode_lines, corpus.CorpusReader([path], size)))


def test_files_that_do_not_end_a_document_are_named(tmp_path):
  paths = []
  for number, content in enumerate(["a\n", "b\n\n", "", "c\n \n", "d", "\n",
                                    "e"]):
    paths.append(str(tmp_path / str(number)))
    with open(paths[-1], "w") as writer:
      writer.write(content)
  reader = corpus.CorpusReader(paths)
  list(reader)
  assert reader.open_ended == [paths[0], paths[4]]


def test_vocabulary_must_have_the_markers(tmp_path):
  with pytest.raises(UserError, match=r"no \[CLS\], \[MASK\] among its 2"):
    corpus.Vocabulary({"[SEP]": 0, "[UNK]": 1})
  path = str(tmp_path / "vocab.txt")
  with open(path, "wb") as writer:
    writer.write(b"[CLS]\n\xff\n")
  with pytest.raises(UserError, match=r"vocab.txt is not UTF-8.*line 2"):
    corpus.load_vocabulary(path)
  with pytest.raises(UserError, match="--vocab_file: cannot read .*missing"):
    corpus.load_vocabulary(str(tmp_path / "missing"))


def test_find_files(tmp_path):
  for name in ("b.txt", "a.txt", "c[1].txt"):
    (tmp_path / name).write_text("x")
  base = str(tmp_path) + os.sep
  assert files.find_files(base + "*.txt", "input_file") == [
      base + "a.txt", base + "b.txt", base + "c[1].txt"]
  assert files.find_files("%sc[1].txt, %sa.txt," % (base, base), "x") == [
      base + "c[1].txt", base + "a.txt"]
  for value, message in (
      (base + "a.txt," + base + "*.none", r"--input_file: no file matches .*n"),
      (" ,", "--input_file= , names no file"),
      (str(tmp_path), "is a folder: give its files")):
    with pytest.raises(UserError, match=message):
      files.find_files(value, "input_file")


def test_outputs_are_checked(tmp_path):
  text = str(tmp_path / "text")
  (tmp_path / "text").write_text("x")
  (tmp_path / "link").symlink_to(text)
  out = str(tmp_path / "out")
  files.check_outputs([out], [text], "output_file")
  for outputs, message in (
      ([out, text], "text is also an input file"),
      ([str(tmp_path / "link")], "link is also an input file"),
      ([out, out], "out is there twice"),
      ([str(tmp_path)], "is a folder: give the name of a file"),
      ([str(tmp_path / "none" / "out")], "there is no folder .*none")):
    with pytest.raises(UserError, match="--output_file: .*" + message):
      files.check_outputs(outputs, [text], "output_file")


def test_outputs_appear_together_or_not_at_all(tmp_path):
  paths = [str(tmp_path / name) for name in ("a", "b")]
  (tmp_path / "b").write_text("as before")
  with pytest.raises(KeyError):
    with files.OutputFiles(paths, "output_file") as outputs:
      outputs.write(0, b"half")
      outputs.write(1, b"half")
      raise KeyError
  assert os.listdir(str(tmp_path)) == ["b"]
  assert (tmp_path / "b").read_text() == "as before"
  with files.OutputFiles(paths, "output_file") as outputs:
    outputs.write(1, b"whole")
    assert (tmp_path / "b").read_text() == "as before"
  assert sorted(os.listdir(str(tmp_path))) == ["a", "b"]
  assert (tmp_path / "b").read_text() == "whole"
  with pytest.raises(UserError, match="cannot write .*none/c"):
    files.OutputFiles([paths[0], str(tmp_path / "none" / "c")], "output_file")
  assert sorted(os.listdir(str(tmp_path))) == ["a", "b"]


def test_paths_with_a_scheme_go_through_gfile(tmp_path, monkeypatch):
  monkeypatch.setattr(corpus, "BLOCK_BYTES", 500)
  monkeypatch.setattr(pipeline, "_BYTES_PER_WORKER", 1000)
  vocab = samples.write_vocab(tmp_path)
  text = samples.write_corpus(tmp_path / "text", 30)
  settings = InstanceSettings(32, 5, 2)
  local, remote = str(tmp_path / "local"), str(tmp_path / "remote")
  pipeline.create_records(samples.make_where([text], local, vocab), settings)
  found = files.find_files("file://" + str(tmp_path) + "/te*", "input_file")
  pipeline.create_records(
      samples.make_where(found, "file://" + remote, "file://" + vocab,
                         num_workers=2), settings)
  assert open(remote, "rb").read() == open(local, "rb").read()
  with pytest.raises(UserError, match="cannot read file:///none"):
    files.open_file("file:///none/text", "rb", "input_file")
  assert sorted(os.listdir(str(tmp_path))) == ["local", "remote", "text",
                                               "vocab.txt"]
