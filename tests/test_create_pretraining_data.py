"""The command line of create_pretraining_data.py, as processes."""
import os
import random
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCRIPT = os.path.join(ROOT, "create_pretraining_data.py")

WORDS = ("the boat tower river lamp note stone north road wind went came saw "
         "took near with and then").split()

# Runs a command and adds the peak memory of its process, in bytes. It runs in
# a small process of its own: a child takes over its parent's size as its peak.
MEASURE = """
import os, resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
sys.exit(code)
"""


@pytest.fixture(name="vocab")
def make_vocab(tmp_path):
  path = tmp_path / "vocab.txt"
  path.write_text("\n".join(
      ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + WORDS) + "\n")
  return str(path)


def run(*arguments, **kwargs):
  return subprocess.run(
      [sys.executable, SCRIPT] + list(arguments), stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT, text=True, timeout=120, **kwargs)


def write_corpus(path, num_documents, num_sentences=2):
  rng = random.Random(num_documents)
  with open(str(path), "w") as writer:
    for _ in range(num_documents):
      for _ in range(num_sentences):
        writer.write(" ".join(rng.choice(WORDS) for _ in range(9)) + "\n")
      writer.write("\n")
  return str(path)


def count_records(path):
  """Counts the records of a file by their lengths."""
  num_records = 0
  with open(str(path), "rb") as reader:
    while True:
      header = reader.read(12)
      if not header:
        return num_records
      reader.seek(int.from_bytes(header[:8], "little") + 4, os.SEEK_CUR)
      num_records += 1


def test_a_run_with_globs_and_several_outputs(tmp_path, vocab):
  for name in "ab":
    write_corpus(tmp_path / (name + ".txt"), 5)
  single = run("--input_file=*.txt,a.txt".replace("*", "[ab]"),
               "--output_file=single", "--vocab_file=" + vocab,
               "--dupe_factor=2", "--max_seq_length=24", cwd=str(tmp_path))
  assert single.returncode == 0, single.stdout
  assert "Input files: a.txt, b.txt, a.txt" in single.stdout
  assert "of 30 sentences in 15 documents; output files: single" in (
      single.stdout)
  num_records = count_records(tmp_path / "single")
  assert "%d instances" % num_records in single.stdout
  both = run("--input_file=[ab].txt,a.txt", "--output_file=one,two",
             "--vocab_file=" + vocab, "--dupe_factor=2", "--num_workers=2",
             "--max_seq_length=24", cwd=str(tmp_path))
  assert both.returncode == 0, both.stdout
  assert (count_records(tmp_path / "one")
          == count_records(tmp_path / "two") + num_records % 2)
  assert (count_records(tmp_path / "one") + count_records(tmp_path / "two")
          == num_records)
  assert sorted(os.listdir(str(tmp_path))) == [
      "a.txt", "b.txt", "one", "single", "two", "vocab.txt"]


@pytest.mark.parametrize("arguments,message", [
    # The other kinds of mistakes are in tests/mistakes.py.
    (["--output_file=text"], "ERROR: --output_file: text is also an input"),
    (["--vocab_file=none"], "ERROR: --vocab_file=none: there is no such file"),
    (["--dupe_factor=0"], "dupe_factor=0"),
    (["--do_whole_word_masking"], "Unknown command line flag"),
])
def test_wrong_flags_end_with_a_message(tmp_path, vocab, arguments, message):
  write_corpus(tmp_path / "text", 3)
  result = run("--input_file=text", "--output_file=out",
               "--vocab_file=" + vocab, *arguments, cwd=str(tmp_path))
  assert result.returncode == 1
  assert message in result.stdout
  assert "Traceback" not in result.stdout
  assert sorted(os.listdir(str(tmp_path))) == ["text", "vocab.txt"]


def test_bad_byte_in_a_worker(tmp_path, vocab):
  text = write_corpus(tmp_path / "text", 14000)
  assert os.path.getsize(text) > 1 << 20  # else one worker would do
  with open(text, "ab") as writer:
    writer.write(b"the b\xf6at\n")
  result = run("--input_file=" + text, "--output_file=out", "--num_workers=2",
               "--vocab_file=" + vocab, cwd=str(tmp_path))
  assert result.returncode == 1
  assert "ERROR: --input_file: %s, line 42001: byte 0xf6" % text in (
      result.stdout)
  assert "Traceback" not in result.stdout
  assert sorted(os.listdir(str(tmp_path))) == ["text", "vocab.txt"]


def test_help_says_how_the_text_is_laid_out():
  text = " ".join(run("--help").stdout.split())
  assert ("One sentence a line, the sentences of a document on consecutive "
          "lines, a blank line between documents") in text
  for flag in ("input_file", "output_file", "vocab_file", "do_lower_case",
               "do_whole_word_mask", "max_seq_length",
               "max_predictions_per_seq", "random_seed", "dupe_factor",
               "masked_lm_prob", "short_seq_prob", "num_workers",
               "shuffle_window"):
    assert "--" + flag in text or "--[no]" + flag in text


def test_python_interface():
  # Flags of several run scripts cannot be defined in one process.
  script = """
import inspect, random, sys
import create_pretraining_data as c
assert "tensorflow" not in sys.modules, "a second or five for nothing"
defaults = {name: c.FLAGS[name].default for name in (
    "input_file output_file vocab_file do_lower_case do_whole_word_mask "
    "max_seq_length max_predictions_per_seq random_seed dupe_factor "
    "masked_lm_prob short_seq_prob").split()}
assert list(defaults.values()) == [
    None, None, None, True, False, 128, 20, 12345, 10, 0.15, 0.1]
for function, names in (
    (c.create_training_instances, "input_files tokenizer max_seq_length "
     "dupe_factor short_seq_prob masked_lm_prob max_predictions_per_seq rng"),
    (c.create_instances_from_document, "all_documents document_index "
     "max_seq_length short_seq_prob masked_lm_prob max_predictions_per_seq "
     "vocab_words rng"),
    (c.create_masked_lm_predictions, "tokens masked_lm_prob "
     "max_predictions_per_seq vocab_words rng"),
    (c.truncate_seq_pair, "tokens_a tokens_b max_num_tokens rng"),
    (c.write_instance_to_example_files, "instances tokenizer max_seq_length "
     "max_predictions_per_seq output_files"),
    (c.TrainingInstance, "tokens segment_ids masked_lm_positions "
     "masked_lm_labels is_random_next")):
  found = inspect.signature(function).parameters.values()
  assert names.split() == [
      p.name for p in found if p.kind is not p.KEYWORD_ONLY]
assert c.MaskedLmInstance(index=3, label="boat") == (3, "boat")

def masked_together():
  tokens = ["[CLS]", "un", "##known", "[SEP]"]
  return {tuple(c.create_masked_lm_predictions(
      tokens, 0.5, 2, ["a"], random.Random(i))[1]) for i in range(20)}

def masked_alone():
  tokens = ["[CLS]", "un", "##known", "[SEP]"]
  return {tuple(c.create_masked_lm_predictions(
      tokens, 0.1, 1, ["a"], random.Random(i))[1]) for i in range(20)}

assert masked_alone() == {(1,), (2,)}
c.FLAGS(["x", "--do_whole_word_mask"])
assert masked_together() == {(1, 2)}
assert masked_alone() == {()}
"""
  subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True,
                 timeout=60)


def test_memory_does_not_grow_with_dupe_factor(tmp_path, vocab):
  text = write_corpus(tmp_path / "text", 1000)
  peaks = []
  for dupe_factor in (4, 14):
    output = str(tmp_path / ("records%d" % dupe_factor))
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, sys.executable, SCRIPT,
         "--input_file=" + text, "--output_file=" + output,
         "--vocab_file=" + vocab, "--dupe_factor=%d" % dupe_factor,
         "--num_workers=1"], stdout=subprocess.PIPE, check=True, timeout=120)
    peaks.append(int(result.stdout))
  small, large = (os.path.getsize(str(tmp_path / name))
                  for name in ("records4", "records14"))
  assert large - small > 8e6
  # Records alone, not to speak of lists of strings, would be all of that.
  assert peaks[1] - peaks[0] < 3e6


def check_case(shared, tmp_path, case, text):
  folder, = (shared / "cases").glob(case + "-*")
  return run(
      "--vocab_file=../_shared/vocab.txt", "--max_seq_length=64",
      "--max_predictions_per_seq=10", "--random_seed=12345",
      "--output_file=" + str(tmp_path / "OUT.tfrecord"), "--input_file=" + text,
      "--dupe_factor=5", cwd=str(folder))


@pytest.mark.parametrize("text,num_records", [
    ("one_word", 5), ("one_char_docs", 15), ("very_long_line", 10),
    ("crlf", 15), ("u2028", 14), ("special_tokens", 13)])
def test_odd_corpora(shared, tmp_path, text, num_records):
  result = check_case(shared, tmp_path, "42", text + ".txt")
  assert result.returncode == 0, result.stdout
  assert count_records(tmp_path / "OUT.tfrecord") == num_records


@pytest.mark.parametrize("text,message", [
    ("empty", "ERROR: --input_file: no sentence in empty.txt"),
    ("only_blank", "ERROR: --input_file: no sentence in only_blank.txt"),
    ("only_control", "ERROR: --input_file: no sentence in only_control.txt"),
    ("bad_utf8", "ERROR: --input_file: bad_utf8.txt, line 2: byte 0xe9")])
def test_corpora_that_are_refused(shared, tmp_path, text, message):
  result = check_case(shared, tmp_path, "42", text + ".txt")
  assert result.returncode == 1
  assert message in result.stdout
  assert "Traceback" not in result.stdout
  assert not os.listdir(str(tmp_path))


def test_blank_lines_between_sentences(shared, tmp_path):
  result = check_case(shared, tmp_path, "40", "corpus.txt")
  assert result.returncode == 0, result.stdout
  assert "every document has one sentence" in result.stdout
  assert "100 instances (100 with a random next sentence)" in result.stdout
