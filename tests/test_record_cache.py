"""When record files are used again, and when they are made anew."""
import json
import logging
import os
import subprocess
import sys

import pytest

from conftest import ROOT
from multigpu import examples as wire
from multigpu import records
from multigpu.errors import UserError
import tokenization
from tasks import classifier_data
from tasks import classifier_pipeline
from tasks import feature_rows
from tasks import record_cache
from tasks import squad_data
from tasks import squad_pipeline
from tasks import squad_rows
from tasks import workers

WORDS = "the boat went down a river and came back over night".split()
SETTINGS = squad_data.FeatureSettings(24, 6, 8)


class Tokenizers:
  """Makes tokenizers of vocabularies that differ a little."""

  def __init__(self, folder):
    self._folder = folder

  def make(self, extra=(), do_lower_case=True):
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "##s", "?"] + WORDS
    path = self._folder / "vocab.txt"
    path.write_text("\n".join(entries + list(extra)) + "\n")
    return tokenization.FullTokenizer(str(path), do_lower_case)


@pytest.fixture
def tokenizers(tmp_path):
  return Tokenizers(tmp_path)


def make_questions(count, spaced=False):
  """Two questions on each document; documents grow."""
  questions = []
  for index in range(count):
    if index % 2 == 0:
      words = [WORDS[(index + k) % len(WORDS)] for k in range(index % 40)]
      if spaced:
        words.append("the boat")
    questions.append(squad_data.SquadExample(
        "id%d" % index, "the river %s?" % WORDS[index % 7], words,
        words[0] if words else "", 0 if words else -1, 0 if words else -1,
        not words))
  return questions


def make_sentences(count):
  return [classifier_data.InputExample(
      "dev-%d" % i, " ".join(WORDS[i % 5:]), WORDS[i % 3] if i % 2 else None,
      "yes" if i % 3 else "no") for i in range(count)]


def features_as_rows(questions, tokenizer, is_training):
  """The long way: features, then records."""
  table = squad_data.record_table(SETTINGS.max_seq_length, is_training)
  return [records.serialize(squad_data.feature_to_record(feature, is_training),
                            table)
          for feature in squad_data.iterate_features(
              questions, tokenizer, SETTINGS, is_training, False)]


def read_rows(path):
  import tensorflow.compat.v1 as tf
  return list(tf.io.tf_record_iterator(path))


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("spaced", [True, False])
def test_squad_rows_are_those_of_the_features(tokenizers, is_training, spaced):
  questions = make_questions(60, spaced)
  tokenizer = tokenizers.make()
  encoder = squad_rows.SquadRowEncoder(tokenizer, SETTINGS, is_training)
  for rows in (encoder.encode(questions),
               encoder.encode_packed(encoder.pack(questions))):
    with_ids = [wire.wrap_entries(wire.encode_entries(
        {"unique_ids": [squad_data.FIRST_UNIQUE_ID + index]},
        {"unique_ids": ((), "int64")}) + row) for index, row in enumerate(rows)]
    assert with_ids == features_as_rows(questions, tokenizer, is_training)


@pytest.mark.parametrize("task", ["squad", "classifier"])
def test_files_do_not_depend_on_workers(tmp_path, monkeypatch, tokenizers,
                                        task):
  monkeypatch.setattr(feature_rows, "CHUNK_EXAMPLES", 7)
  monkeypatch.setattr(squad_pipeline, "_MIN_QUESTIONS", 0)
  monkeypatch.setattr(classifier_pipeline, "_MIN_EXAMPLES", 0)
  started = []
  start = workers.Workers._start_one
  monkeypatch.setattr(workers.Workers, "_start_one",
                      lambda self: started.append(self) or start(self))
  contents = set()
  for num_workers in (1, 2, 3):
    path = str(tmp_path / ("%d.tf_record" % num_workers))
    if task == "squad":
      count = squad_pipeline.write_records(
          make_questions(60), tokenizers.make(), SETTINGS, path, True,
          num_workers)
    else:
      count = classifier_pipeline.write_records(
          make_sentences(60), ["no", "yes"], 12, tokenizers.make(), path,
          num_workers)
    rows = read_rows(path)
    assert count == len(rows) >= 60
    contents.add(b"".join(rows))
  assert len(contents) == 1
  assert len(started) == 5


def test_few_examples_start_no_process(tmp_path, monkeypatch, tokenizers):
  monkeypatch.setattr(workers.Workers, "_start_one", None)
  squad_pipeline.write_records(make_questions(300), tokenizers.make(), SETTINGS,
                               str(tmp_path / "a"), True, 8)
  classifier_pipeline.write_records(make_sentences(300), ["no", "yes"], 12,
                                    tokenizers.make(), str(tmp_path / "b"), 8)


def test_the_first_bad_example_is_named(tmp_path, monkeypatch, tokenizers):
  monkeypatch.setattr(feature_rows, "CHUNK_EXAMPLES", 7)
  monkeypatch.setattr(classifier_pipeline, "_MIN_EXAMPLES", 0)
  sentences = make_sentences(60)
  sentences[33].label = sentences[50].label = "perhaps"
  for num_workers in (1, 2):
    with pytest.raises(UserError, match="dev-33: unknown label 'perhaps'"):
      classifier_pipeline.write_records(
          sentences, ["no", "yes"], 12, tokenizers.make(),
          str(tmp_path / "x.tf_record"), num_workers)
  assert os.listdir(str(tmp_path)) == ["vocab.txt"]


class Cache:
  """Prepares one record file again and again."""

  def __init__(self, path, prepare, caplog):
    self.path = str(path)
    self._prepare = prepare
    self._caplog = caplog

  def is_used_again(self, **changes):
    """Prepares the file; checks it against one made without cache."""
    self._caplog.clear()
    with self._caplog.at_level(logging.INFO):
      num_records = self._prepare(self.path, **changes)
    rows = read_rows(self.path)
    assert len(rows) == num_records
    fresh = self.path + ".fresh"
    self._prepare(fresh, **changes)
    assert rows == read_rows(fresh)
    for name in (fresh, fresh + ".json"):
      os.remove(name)
    name = os.path.basename(self.path)
    text = self._caplog.text
    again = name + ": made before from the same data, used again" in text
    assert again != (name + ": being made" in text)
    return again


@pytest.fixture
def squad(tmp_path, tokenizers, caplog):
  def prepare(path, questions=None, settings=SETTINGS, is_training=True,
              **vocabulary):
    return squad_pipeline.prepare_records(
        questions or make_questions(8), tokenizers.make(**vocabulary), settings,
        path, is_training)
  return Cache(tmp_path / "train.tf_record", prepare, caplog)


@pytest.fixture
def classifier(tmp_path, tokenizers, caplog):
  def prepare(path, sentences=None, labels=("no", "yes"), length=12,
              **vocabulary):
    return classifier_pipeline.prepare_records(
        sentences or make_sentences(8), labels, length,
        tokenizers.make(**vocabulary), path)
  return Cache(tmp_path / "eval.tf_record", prepare, caplog)


def change(examples, index, **values):
  for name, value in values.items():
    setattr(examples[index], name, value)
  return examples


SQUAD_CHANGES = [
    {"extra": ["##night"]}, {"do_lower_case": False}, {"is_training": False},
    {"settings": SETTINGS._replace(max_seq_length=25)},
    {"settings": SETTINGS._replace(doc_stride=5)},
    {"settings": SETTINGS._replace(max_query_length=3)},
    {"questions": make_questions(9)},
    {"questions": make_questions(8)[::-1]},
    {"questions": change(make_questions(8), 3, question_text="a boat?")},
    {"questions": change(make_questions(8), 3, doc_tokens=["boat"])},
    {"questions": change(make_questions(8), 6, orig_answer_text="river")},
    {"questions": change(make_questions(8), 6, start_position=1,
                         end_position=1)},
    {"questions": change(make_questions(8), 6, is_impossible=True)}]

CLASSIFIER_CHANGES = [
    {"extra": ["##night"]}, {"do_lower_case": False}, {"length": 13},
    {"labels": ("yes", "no")}, {"labels": ("no", "yes", "perhaps")},
    {"labels": classifier_data.LabelSet(classifier_data.MULTI_LABEL,
                                        ("no", "yes"))},
    {"sentences": make_sentences(9)},
    {"sentences": make_sentences(8)[::-1]},
    {"sentences": change(make_sentences(8), 2, text_a="boat")},
    {"sentences": change(make_sentences(8), 3, text_b="boat")},
    {"sentences": change(make_sentences(8), 2, label="no")},
    {"sentences": make_sentences(8)[:7]
                  + [classifier_data.PaddingInputExample()]}]


@pytest.mark.parametrize("task, changes", [
    ("squad", SQUAD_CHANGES), ("classifier", CLASSIFIER_CHANGES)])
def test_whatever_changes_makes_the_file_anew(request, task, changes):
  cache = request.getfixturevalue(task)
  assert not cache.is_used_again()
  assert cache.is_used_again()
  for some in changes:
    assert not cache.is_used_again(**some), some
    assert cache.is_used_again(**some), some
  assert not cache.is_used_again()


def test_new_code_makes_the_file_anew(squad, monkeypatch):
  squad.is_used_again()
  monkeypatch.setattr(record_cache, "FORMAT", record_cache.FORMAT + 1)
  assert not squad.is_used_again()
  read_source = record_cache._read_source
  for name in ("tokenization", "tasks.squad_rows", "tasks.squad_pieces",
               "tasks.squad_windows", "tasks.squad_pipeline",
               "multigpu.examples"):
    monkeypatch.setattr(
        record_cache, "_read_source", lambda module, name=name: (
            read_source(module) + "#" * (module.__name__ == name)))
    assert not squad.is_used_again(), name


def damage_end(path, note):
  with open(path, "r+b") as stream:
    stream.truncate(os.path.getsize(path) - 1)


def damage_middle(path, note):
  with open(path, "r+b") as stream:
    stream.seek(100)
    stream.write(b"\xee")


def replace_by_another(path, note):
  table = {"ids": ((), "int64")}
  with records.RecordWriter(path, table) as writer:
    writer.write({"ids": [3]})


def cut_note(path, note):
  with open(note) as stream:
    content = json.load(stream)
  del content["file"]
  with open(note, "w") as stream:
    json.dump(content, stream)


DAMAGES = [
    damage_end, damage_middle, replace_by_another,
    lambda path, note: os.remove(path),
    lambda path, note: os.remove(note),
    lambda path, note: open(note, "w").close(),
    lambda path, note: open(note, "w").write("[3]"),
    cut_note]


def test_a_damaged_file_is_made_anew(squad):
  squad.is_used_again()
  for damage in DAMAGES:
    damage(squad.path, squad.path + ".json")
    assert not squad.is_used_again()
    assert squad.is_used_again()


@pytest.mark.parametrize("when", ["rows", "note"])
def test_a_kill_leaves_no_file_to_trust(squad, tmp_path, when):
  """Killed among the rows, or between the record file and its note."""
  squad.is_used_again()
  patch = {
      "rows": "import tasks.feature_rows as m\n"
              "rows = m.iterate_rows\n"
              "def iterate_rows(*a):\n"
              "  for i, row in enumerate(rows(*a)):\n"
              "    if i == 3: os.kill(os.getpid(), 9)\n"
              "    yield row\n"
              "m.iterate_rows = iterate_rows",
      "note": "import tasks.record_cache as m\n"
              "m.write_text_atomically = "
              "lambda *a: os.kill(os.getpid(), 9)"}[when]
  script = "\n".join([
      "import os, pathlib, sys",
      "sys.path[:0] = [%r, %r]" % (str(ROOT), str(ROOT / "tests")), patch,
      "import test_record_cache as t",
      "t.squad_pipeline.prepare_records(t.make_questions(9),",
      "    t.Tokenizers(pathlib.Path(%r)).make(), t.SETTINGS, %r, True)" % (
          str(tmp_path), squad.path)])
  killed = subprocess.run([sys.executable, "-c", script], timeout=120,
                          stderr=subprocess.DEVNULL)
  assert killed.returncode == -9
  if when == "rows":
    assert squad.is_used_again()  # the old file is as good as it was
  assert not squad.is_used_again(questions=make_questions(9))
