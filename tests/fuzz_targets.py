"""What is done with fuzzed files: the readers, and what follows on them.

Lives here: samples and targets by format. A target takes (folder, content,
random generator) and may raise UserError.
"""
import functools
import json
import os
import random

import fuzz_mutations
import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from multigpu import model_files
from multigpu import record_files
from multigpu import records
from tasks import classifier_data
from tasks import pretraining_corpus
from tasks import pretraining_files
from tasks import pretraining_pipeline
from tasks import squad_answers
from tasks import squad_data
from tasks import squad_examples
from tasks import squad_metrics
from tasks.classifier_processors import PROCESSORS
from tasks.classifier_tsv import (TsvProcessor, TsvSettings, read_labels,
                                  write_labels)
from tasks.pretraining_pairs import InstanceSettings
from tasks.pretraining_records import LENGTH_FLAGS, record_table, value_limits
import tokenization

WORDS = ("the boat is blue a tower near river lamp . , ? what who when 1 2 18 "
         "e un ##known ##s ##ed").split()
ENTRIES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + WORDS
CONFIG = modeling.BertConfig(vocab_size=len(ENTRIES) + 4, hidden_size=8,
                             num_hidden_layers=1, num_attention_heads=1)
SEQ_LENGTH, PREDICTIONS = 16, 3
LONG_TEXT = "the boat is blue, a tower near the river. " * 3


def write(folder, name, content):
  path = os.path.join(folder, name)
  with open(path, "wb") as writer:
    writer.write(content)
  return path


@functools.lru_cache(maxsize=None)
def make_tokenizer():
  folder = os.environ.get("TMPDIR", "/tmp")
  path = write(folder, "fuzz-vocab-%d.txt" % os.getpid(),
               "\n".join(ENTRIES).encode())
  try:
    return tokenization.FullTokenizer(path, do_lower_case=True)
  finally:
    os.remove(path)


# SQuAD


@functools.lru_cache(maxsize=None)
def json_samples():
  def question(qas_id, text, start, **fields):
    return dict({"id": qas_id, "question": "what is the %s?" % text,
                 "answers": [{"text": text, "answer_start": start}]}, **fields)

  def pack(*paragraphs):
    return json.dumps({"version": "1.1", "data": [
        {"title": "t", "paragraphs": list(paragraphs)}]}).encode()

  first = {"context": "the boat is blue", "qas": [question("a", "boat", 4),
                                                  question("b", "blue", 12)]}
  impossible = {"context": LONG_TEXT, "qas": [
      question("c", "tower", 20), dict(question("d", "x", 0), answers=[],
                                       is_impossible=True)]}
  no_answers = {"context": "\u00c9t\u00e9 18", "qas": [
      {"id": "e", "question": "when?"}]}
  return [pack(first), pack(first, impossible), pack(no_answers, first)]


def try_json(folder, content, rng):
  path = write(folder, "squad.json", content)
  version_2, strict = rng.random() < 0.5, rng.random() < 0.1
  is_training = rng.random() < 0.4
  examples = squad_examples.read_squad_examples(path, is_training, version_2,
                                                strict)
  settings = squad_data.FeatureSettings(SEQ_LENGTH, rng.choice([1, 4, 40]), 5)
  features = list(squad_data.iterate_features(
      examples, make_tokenizer(), settings, is_training, show_progress=False))
  check_features(features, examples, is_training)
  if is_training:
    return
  check_answers(examples, features, version_2, rng)
  if squad_metrics.has_answers(path, version_2):
    predictions = {str(example.qas_id): rng.choice(["", "boat", "\ud800"])
                   for example in examples}
    squad_metrics.evaluate(path, predictions, {
        qas_id: rng.random() for qas_id in predictions}, version_2)


def check_features(features, examples, is_training):
  assert len(features) >= len(examples)
  for feature in features:
    for ids in (feature.input_ids, feature.input_mask, feature.segment_ids):
      assert len(ids) == SEQ_LENGTH
    assert all(0 <= index < len(ENTRIES) for index in feature.input_ids)
    if is_training:
      assert (0 <= feature.start_position <= feature.end_position
              < len(feature.tokens))


def check_answers(examples, features, version_2, rng):
  """All questions get an answer, and it is a part of their document."""
  generator = np.random.RandomState(rng.randrange(1 << 30))
  settings = squad_answers.AnswerSettings(
      n_best_size=rng.choice([1, 3]), version_2_with_negative=version_2)
  groups = squad_answers._group_by_question(examples, features, [
      squad_answers.RawResult(
          feature.unique_id, *generator.normal(size=(2, SEQ_LENGTH)))
      for feature in features])
  writer = squad_answers.AnswerWriter()
  for example, answer in zip(
      examples, squad_answers.iterate_answers(groups, settings)):
    document = " ".join(example.doc_tokens)
    assert answer.text in document or answer.text == "empty"
    json.loads(squad_answers._to_json_list(answer.nbest))
    writer.add(answer)
  squad_answers._to_json(writer.predictions).encode("utf-8")


# Classification


@functools.lru_cache(maxsize=None)
def tsv_samples():
  return ["\n".join("\t".join(row) for row in rows).encode() for rows in (
      [("Quality", "#1 ID", "#2 ID", "text_a", "label")]
      + [(str(i % 2), "1", "2", "the boat %d" % i, "red" if i % 3 else "blue")
         for i in range(6)],
      [("text", "label")] + [("caf\u00e9 %d" % i, "ab"[i % 2])
                             for i in range(4)],
      [("sentence1", "sentence2", "label")]
      + [("the boat", "a boat", str(i)) for i in range(4)])]


@functools.lru_cache(maxsize=None)
def csv_samples():
  return [sample.replace(b"\t", b",").replace(b"caf", b'"caf, ""1""\n"')
          for sample in tsv_samples()] + [
              b'text,label\n"a ""b"", c",x\n"two\nlines",y\n', b'"text","label"'
              b'\r\n"one","x"\r\n"two","y"\r\n']


def try_table(suffix, folder, content, rng):
  for name in ("train", "dev", "test"):
    write(folder, name + suffix, content)
  if suffix == ".tsv" and rng.random() < 0.4:
    processor = PROCESSORS[rng.choice(["mrpc", "cola", "sts-b", "qqp",
                                       "sst-2"])]()
  else:
    processor = TsvProcessor(TsvSettings(multi_label=rng.random() < 0.3))
  processor.strict = rng.random() < 0.1
  sets = [read(folder) for read in (
      processor.get_train_examples, processor.get_dev_examples,
      processor.get_test_examples)]
  labels = processor.get_label_set()
  encoder = classifier_data.ClassifierRowEncoder(labels, SEQ_LENGTH,
                                                 make_tokenizer())
  for examples in sets:
    assert examples
    assert len(encoder.encode(examples)) == len(examples)
  if isinstance(processor, TsvProcessor):
    path = os.path.join(folder, "labels.txt")
    write_labels(path, labels.names)
    assert tuple(read_labels(path)) == labels.names


# Vocabulary


@functools.lru_cache(maxsize=None)
def vocabulary_samples():
  return ["\n".join(ENTRIES).encode(), "\r\n".join(ENTRIES + [""]).encode(),
          "\n".join(ENTRIES + ["caf\u00e9", "\u8dd1"]).encode()]


def try_vocabulary(folder, content, rng):
  path = write(folder, "vocab.txt", content)
  ids = pretraining_corpus.load_vocabulary(path)
  pretraining_corpus.Vocabulary(ids, do_whole_word_mask=rng.random() < 0.5)
  tokenizer = model_files.load_tokenizer(path, rng.random() < 0.5, CONFIG)
  example = squad_examples.SquadExample("q", "what?", LONG_TEXT.split())
  features = list(squad_data.iterate_features(
      [example], tokenizer, squad_data.FeatureSettings(SEQ_LENGTH, 4, 5),
      show_progress=False))
  assert all(0 <= index < CONFIG.vocab_size
             for feature in features for index in feature.input_ids)


# Plain text


@functools.lru_cache(maxsize=None)
def text_samples():
  return [b"the boat is blue\na tower near the river\n\nthe lamp\nis blue\n",
          ("caf\u00e9 \u8dd1 \u200b\n" + LONG_TEXT + "\n\n1\n2\n18").encode(),
          b"one sentence\n"]


def try_text(folder, content, rng):
  path = write(folder, "corpus.txt", content)
  vocab = write(folder, "vocab.txt", "\n".join(ENTRIES).encode())
  output = os.path.join(folder, "records")
  if rng.random() < 0.1:
    path = pretraining_files.find_files(path + "," + folder + "/corp*", "x")[0]
  counts = pretraining_pipeline.create_records(
      pretraining_pipeline.CorpusSettings(
          [path], [output], vocab, random_seed=rng.randrange(99),
          shuffle_window=rng.choice([4, 1 << 20]),
          strict=rng.random() < 0.1),
      InstanceSettings(SEQ_LENGTH, PREDICTIONS, 2, 0.15, 0.1, False))
  found = list(record_files.iterate_records(output))
  assert len(found) == counts.instances > 0
  for record in found:
    assert record_files.find_problem(record, EXPECTED) is None


# Records

TABLE = record_table(SEQ_LENGTH, PREDICTIONS)
EXPECTED = record_files.Expected(
    TABLE, value_limits(SEQ_LENGTH, CONFIG.vocab_size, 16), LENGTH_FLAGS)


def make_record(rng, table=None):
  table = TABLE if table is None else table
  return records.serialize({
      name: [rng.randrange(2) for _ in range(shape[0])]
      for name, (shape, _) in table.items()}, table)


def frame(folder, serialized):
  path = os.path.join(folder, "framed")
  with tf.io.TFRecordWriter(path) as writer:
    for record in serialized:
      writer.write(record)
  with open(path, "rb") as reader:
    return reader.read()


@functools.lru_cache(maxsize=None)
def record_samples():
  """Pairs of bytes: those of a file, and those of one record."""
  rng = random.Random(0)
  return [make_record(rng), make_record(rng), make_record(
      rng, record_table(SEQ_LENGTH + 1, PREDICTIONS)), make_record(
          rng, dict(TABLE, extra=((2,), "float32")))]


def try_records(folder, content, rng):
  """A file whose first record is mutated, or whose bytes are."""
  data = content
  if rng.random() < 0.5:
    data = fuzz_mutations.mutate(
        "records", frame(folder, [record_samples()[0]] * 3), rng)
    path = write(folder, "file", data)
  else:
    path = write(folder, "file", frame(folder, [content]))
  record_files.check_files([path], EXPECTED, strict=rng.random() < 0.1)
  found = list(record_files.iterate_records(path))
  assert record_files.count_records(path) == len(found)
  problems = [record_files.find_problem(record, EXPECTED) for record in found]
  if tf.__version__.startswith("1."):
    return  # its parser dies of some records (a fault that 2.x has mended)
  # What is found to be right must be so for TensorFlow, too.
  Parser.get().parse([record for record, problem in zip(found, problems)
                      if problem is None])


class Parser:
  """Parses records as the input pipeline does, in one graph."""

  _one = None

  def __init__(self):
    with tf.Graph().as_default():
      self._input = tf.placeholder(tf.string, [None])
      self._output = records.parse_batch(self._input, TABLE)
      self._session = tf.Session()

  @classmethod
  def get(cls):
    if cls._one is None:
      cls._one = cls()
    return cls._one

  def parse(self, serialized):
    if serialized:
      self._session.run(self._output, {self._input: serialized})


SAMPLES = {"json": json_samples, "tsv": tsv_samples, "csv": csv_samples,
           "vocab": vocabulary_samples, "text": text_samples,
           "records": record_samples}
TARGETS = {"json": try_json, "tsv": functools.partial(try_table, ".tsv"),
           "csv": functools.partial(try_table, ".csv"),
           "vocab": try_vocabulary, "text": try_text, "records": try_records}
