"""Windows and workers of the making of pre-training data."""
import os
import subprocess
import sys

import numpy as np
import pytest

import pretraining_samples as samples
from multigpu.errors import UserError
from tasks import pretraining_corpus as corpus
from tasks import pretraining_files as files
from tasks import pretraining_pipeline as pipeline
from tasks import pretraining_splitter as splitter
from tasks.pretraining_pairs import InstanceSettings


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


# Windows.


def split(folder, lengths, window_pieces, block_size):
  """Returns the windows that sentences of these lengths are split into."""
  lengths = np.array(lengths, np.int32)
  ids = np.arange(lengths.sum(), dtype=np.int32)
  ends = np.cumsum(lengths)
  parts = splitter.WindowSplitter(str(folder), window_pieces)
  windows = []
  for start in range(0, len(lengths), block_size):
    stop = min(start + block_size, len(lengths))
    first = ends[start - 1] if start else 0
    windows += parts.add(corpus.TokenizedBlock(
        lengths[start:stop], ids[first:ends[stop - 1]]))
  windows += parts.finish()
  result, all_ids = [], []
  for window in windows:
    result.append([n for names in window
                   for n in np.fromfile(names.lengths, np.int32)])
    all_ids += [n for names in window for n in np.fromfile(names.ids, np.int32)]
    for names in window:
      os.remove(names.lengths)
      os.remove(names.ids)
  assert all_ids == ids.tolist()
  return result, parts.num_cut


@pytest.mark.parametrize("block_size", [1, 2, 3, 100])
def test_windows_are_whole_documents(tmp_path, block_size):
  documents = [[3, 3, 0], [5, 0], [1, 1, 0], [8, 0], [2, 0], [3, 4, 0], [4]]
  lengths = sum(documents, [])
  # A window ends where it has reached 7 pieces; the last one, [4], is at least
  # half of that.
  assert split(tmp_path, lengths, 7, block_size) == (
      [documents[0] + documents[1], documents[2] + documents[3],
       documents[4] + documents[5], documents[6]], 0)
  # Here it is less and is joined to the one before it.
  assert split(tmp_path, lengths, 9, block_size) == (
      [documents[0] + documents[1], documents[2] + documents[3],
       documents[4] + documents[5] + documents[6]], 0)
  assert split(tmp_path, lengths, 1000, block_size) == ([lengths], 0)
  assert split(tmp_path, [], 7, block_size) == ([], 0)


def test_an_endless_document_is_cut(tmp_path):
  for block_size in (1, 3, 100):
    windows, num_cut = split(tmp_path, [5] * 20, 10, block_size)
    assert windows == [[5] * 4] * 5
    assert num_cut == 5


def test_several_windows_do_not_depend_on_workers(tmp_path, monkeypatch):
  monkeypatch.setattr(corpus, "BLOCK_BYTES", 500)
  monkeypatch.setattr(pipeline, "_BYTES_PER_WORKER", 2000)
  vocab = samples.write_vocab(tmp_path)
  texts = [samples.write_corpus(tmp_path / "text1", 60, seed=1),
           samples.write_corpus(tmp_path / "text2", 20, seed=2)]
  settings = InstanceSettings(32, 5, 3)
  results = []
  for num_workers in (1, 2, 3):
    outputs = [str(tmp_path / ("%d-%d" % (num_workers, i))) for i in range(3)]
    counts = pipeline.create_records(
        samples.make_where(texts, outputs, vocab, num_workers=num_workers,
                   shuffle_window=300), settings)
    results.append([open(path, "rb").read() for path in outputs])
    assert counts.documents == 80
  assert results[1] == results[0]
  assert results[2] == results[0]
  # One file has the same records, dealt out; another window, other records.
  single = str(tmp_path / "single")
  pipeline.create_records(
      samples.make_where(texts, single, vocab, shuffle_window=300), settings)
  expected = samples.read_records([single], settings)
  assert len(expected["input_ids"]) == counts.instances
  for number in range(3):
    samples.assert_same(
        samples.read_records([str(tmp_path / ("1-%d" % number))], settings),
        {name: rows[number::3] for name, rows in expected.items()})
  pipeline.create_records(samples.make_where(texts, single, vocab), settings)
  other = samples.read_records([single], settings)
  assert other["input_ids"].tolist() != expected["input_ids"].tolist()
  # Nothing else is left in the folder.
  assert sorted(os.listdir(str(tmp_path))) == sorted(
      ["vocab.txt", "text1", "text2", "single"]
      + ["%d-%d" % (n, i) for n in (1, 2, 3) for i in range(3)])


def test_pairs_of_a_window_come_from_it(tmp_path):
  # Each window has words of its own.
  vocab = str(tmp_path / "vocab.txt")
  words = ["w%d" % i for i in range(8)]
  with open(vocab, "w") as writer:
    writer.write("\n".join(samples.MARKERS + words))
  text = str(tmp_path / "text")
  with open(text, "w") as writer:
    for word in words:
      for _ in range(4):
        writer.write("%s %s\n%s %s %s\n\n" % ((word,) * 5))
  settings = InstanceSettings(12, 1, 4, masked_lm_prob=0)
  output = str(tmp_path / "records")
  pipeline.create_records(
      samples.make_where([text], output, vocab, shuffle_window=20), settings)
  found = samples.read_records([output], settings)
  ids = found["input_ids"]
  places = found["masked_lm_positions"]
  ids[np.arange(len(ids))[:, None], places] = found["masked_lm_ids"]
  for row in ids:
    assert len(set(row[row >= len(samples.MARKERS)])) == 1
  assert set(ids[ids >= len(samples.MARKERS)]) == set(
      range(len(samples.MARKERS), len(samples.MARKERS) + len(words)))


def test_corpus_without_a_sentence(tmp_path):
  vocab = samples.write_vocab(tmp_path)
  (tmp_path / "text").write_text("\n \n\x01\n")
  with pytest.raises(UserError, match="no sentence in .*text"):
    pipeline.create_records(
        samples.make_where([str(tmp_path / "text")], tmp_path / "out", vocab),
        InstanceSettings())
  assert sorted(os.listdir(str(tmp_path))) == ["text", "vocab.txt"]


def test_a_full_disk_is_reported(tmp_path, monkeypatch):
  vocab = samples.write_vocab(tmp_path)
  text = samples.write_corpus(tmp_path / "text", 3)

  def write(*_):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(files.OutputFiles, "append", write)
  with pytest.raises(UserError, match="making .*out failed: .*No space left"):
    pipeline.create_records(samples.make_where([text], tmp_path / "out", vocab),
                            InstanceSettings())
  assert sorted(os.listdir(str(tmp_path))) == ["text", "vocab.txt"]


def test_too_short_sequences(tmp_path):
  with pytest.raises(UserError, match="--max_seq_length=4: .* at least 5"):
    pipeline.check_settings(InstanceSettings(max_seq_length=4))
  pipeline.check_settings(InstanceSettings(max_seq_length=5))


def test_warnings_about_the_layout(tmp_path, caplog):
  vocab = samples.write_vocab(tmp_path)
  text, other = tmp_path / "text", tmp_path / "other"

  def messages(content, other_content=None, **changes):
    text.write_text(content)
    inputs = [str(text)]
    if other_content is not None:
      other.write_text(other_content)
      inputs.append(str(other))
    caplog.clear()
    with caplog.at_level("INFO"):
      pipeline.create_records(
          samples.make_where(inputs, tmp_path / "out", vocab, **changes),
          InstanceSettings(16, 3, 1))
    return " | ".join(record.getMessage() for record in caplog.records)

  assert messages("the boat\nthe road\n\nthe river\n") == ""
  assert "every document has one sentence" in messages("boat\n\nroad\n\n")
  assert "only one document" in messages("the boat\nthe road\n")
  found = messages("boat\nroad\n", "lamp\n\nriver\n")
  assert "1 input files, %s the first of them, do not end" % text in found
  found = messages("the boat\n" * 40, shuffle_window=10)
  assert "a document was cut" in found and "pass a larger window" in found


def test_a_killed_worker_is_reported(tmp_path):
  vocab = samples.write_vocab(tmp_path)
  text = samples.write_corpus(tmp_path / "text", 100)
  script = "\n".join([
      "import os",
      "from tasks import pretraining_pipeline as p",
      "from tasks import pretraining_workers",
      "p._BYTES_PER_WORKER = 1000",
      "pretraining_workers.Worker.tokenize = lambda *_: os._exit(9)",
      "try:",
      "  p.create_records(p.CorpusSettings([%r], [%r], %r, num_workers=2)," % (
          text, str(tmp_path / "out"), vocab),
      "                   p.InstanceSettings())",
      "except p.UserError as error:",
      "  print('UserError', error)"])
  output = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True,
                          stdout=subprocess.PIPE, timeout=60).stdout
  assert b"UserError a worker process was killed" in output
  assert sorted(os.listdir(str(tmp_path))) == ["text", "vocab.txt"]


def test_lines_that_give_no_piece_are_named(tmp_path, caplog):
  vocab = samples.write_vocab(tmp_path)
  text = tmp_path / "text"
  text.write_text("the boat\n\u200b\nwas the lamp\n\nthe stone\n \u0301 \n",
                  encoding="utf-8")
  where = samples.make_where([str(text)], tmp_path / "records", vocab)
  counts = pipeline.create_records(where, InstanceSettings(16, 3, 1))
  assert (counts.documents, counts.sentences) == (2, 3)
  (record,) = caplog.records
  assert record.getMessage().startswith(
      "--input_file: skipped 2 lines of characters that BERT drops")
  assert record.getMessage().endswith("%s, line 2; %s, line 6" % (text, text))
  os.remove(where.output_files[0])
  with pytest.raises(UserError, match="skipped 2 lines.*--strict=True"):
    pipeline.create_records(where._replace(strict=True),
                            InstanceSettings(16, 3, 1))
  assert not os.path.exists(where.output_files[0])


def test_files_named_twice_are_told(tmp_path, caplog):
  (tmp_path / "a.txt").write_text("the boat\n")
  name = str(tmp_path / "a.txt")
  assert files.find_files(name + "," + str(tmp_path / "*.txt"),
                          "input_file") == [name, name]
  (record,) = caplog.records
  assert record.getMessage() == (
      "--input_file: 1 files are named more than once, and count as often: "
      + name)
