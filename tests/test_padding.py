"""Batches cut to their longest row give what the full length gives."""
import collections
import itertools
import json
import shutil

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from conftest import ROOT
import modeling
from multigpu import by_length
from multigpu import devices as devices_lib
from multigpu import padding
from multigpu import records
from multigpu import runs
from multigpu import sequences
from multigpu import training
from multigpu.sequences import SequenceLength
from tasks import classifier_data
from tasks import pretraining_records
from tasks import squad_answers
from tasks import squad_data
from tasks import squad_examples
from tasks import squad_pipeline
from tasks.classifier_head import make_classifier_head
from tasks.pretraining_head import make_pretraining_head
from tasks.squad_head import PADDING_LOGIT, squad_head
import tokenization

tf.logging.set_verbosity(tf.logging.ERROR)

LENGTH = 40
VOCAB = 30
NUM_ROWS = 21
# Without dropout: its random numbers depend on the shape.
CONFIG = modeling.BertConfig(
    vocab_size=VOCAB, hidden_size=16, num_hidden_layers=1,
    num_attention_heads=2, intermediate_size=24, hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0, max_position_embeddings=LENGTH,
    initializer_range=0.3)


def evaluate(*tensors):
  with tf.Session() as session:
    return session.run(tensors)


def test_lengths_of_rows():
  with tf.Graph().as_default():
    lengths, = evaluate(padding.row_lengths(tf.constant(
        [[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]])))
  # Up to the last one; a row without any is a full one.
  assert lengths.tolist() == [2, 3, 4, 4]


@pytest.mark.parametrize("longest, multiple, expected", [
    (9, 8, 16), (16, 8, 16), (17, 8, 20), (1, 8, 8), (9, 64, 20), (9, 1, 9),
    (9, 0, 20)])
def test_cut_to_the_longest_row(longest, multiple, expected):
  # As many labels as positions: what is marked counts, not the number.
  table = {"input_ids": ((SequenceLength(20),), "int64"),
           "input_mask": ((SequenceLength(20),), "int64"),
           "vectors": ((SequenceLength(20), 3), "float32"),
           "label_ids": ((20,), "float32"), "id": ((), "int64")}
  mask = np.zeros([2, 20], np.int32)
  mask[0, :longest] = mask[1, :1] = 1
  features = {"input_ids": np.arange(40).reshape(2, 20), "input_mask": mask,
              "vectors": np.arange(120.0).reshape(2, 20, 3),
              "label_ids": np.zeros([2, 20]), "id": np.arange(2)}
  with tf.Graph().as_default():
    cut = padding.cut_batch(
        {name: tf.constant(value) for name, value in features.items()}, table,
        multiple)
    found = dict(zip(cut, evaluate(*cut.values())))
  for name in ("input_ids", "input_mask", "vectors"):
    np.testing.assert_array_equal(found[name], features[name][:, :expected])
  assert found["label_ids"].shape == (2, 20) and found["id"].shape == (2,)


def test_masked_padding_is_not_cut_away():
  table = {"input_ids": ((SequenceLength(40),), "int64"),
           "input_mask": ((SequenceLength(40),), "int64"),
           "masked_lm_positions": ((2,), "int64")}
  features = {"input_ids": np.ones([1, 40], np.int32),
              "input_mask": np.array([[1] * 5 + [0] * 35], np.int32),
              "masked_lm_positions": np.array([[1, 17]], np.int32)}
  with tf.Graph().as_default():
    cut = padding.cut_batch(
        {name: tf.constant(value) for name, value in features.items()}, table)
    ids, = evaluate(cut["input_ids"])
  assert ids.shape == (1, 24)


@pytest.mark.parametrize("table", [
    classifier_data.record_table(20, classifier_data.LabelSet(
        classifier_data.MULTI_LABEL, [str(i) for i in range(20)])),
    pretraining_records.record_table(20, 20),
    squad_data.record_table(20, is_training=True)])
def test_what_goes_along_the_sequence(table):
  assert sorted(sequences.sequence_features(table)) == [
      "input_ids", "input_mask", "segment_ids"]
  assert sequences.full_length(table) == 20
  # Who prints or stores a table sees numbers.
  assert repr(table["input_ids"]) == "((20,), 'int64')"
  assert json.dumps(table["input_ids"]) == '[[20], "int64"]'


def test_tables_that_do_not_fit():
  assert sequences.full_length({"x": ((3,), "int64")}) is None
  with pytest.raises(ValueError, match=r"\[3, 4\]"):
    sequences.full_length({"x": ((SequenceLength(3),), "int64"),
                           "y": ((SequenceLength(4),), "int64")})


def write_rows(path, table, extra):
  """Rows of random pieces, short ones and full ones mixed."""
  random = np.random.RandomState(5)
  with records.RecordWriter(path, table) as writer:
    for i in range(NUM_ROWS):
      # The first batches are far from full, the last ones are.
      length = LENGTH if i > 17 else random.randint(6, 12 + i)
      mask = np.arange(LENGTH) < length
      segments = (np.arange(LENGTH) >= length // 2) & mask
      writer.write(dict(
          extra(i, length, random),
          input_ids=random.randint(1, VOCAB, LENGTH) * mask,
          input_mask=mask.astype(int), segment_ids=segments.astype(int)))
  return runs.Rows(path, table)


def classifier_rows(path):
  return write_rows(
      path, classifier_data.record_table(LENGTH, ["a", "b", "c"]),
      lambda i, *_: {"label_ids": [i % 3], "is_real_example": [1]})


def pretraining_rows(path):
  def extra(i, length, random):
    count = random.randint(1, 6)
    positions = np.zeros(6, int)
    positions[:count] = np.sort(random.choice(length, count, replace=False))
    weights = (np.arange(6) < count).astype(float)
    return {"masked_lm_positions": positions,
            "masked_lm_ids": random.randint(1, VOCAB, 6) * weights.astype(int),
            "masked_lm_weights": weights, "next_sentence_labels": [i % 2]}
  return write_rows(path, pretraining_records.record_table(LENGTH, 6), extra)


def squad_rows(path, is_training=True):
  def extra(i, length, random):
    values = {"unique_ids": [i]}
    if is_training:
      values.update(start_positions=[random.randint(length)],
                    end_positions=[random.randint(length)], is_impossible=[0])
    return values
  return write_rows(path, squad_data.record_table(LENGTH, is_training), extra)


Task = collections.namedtuple("Task", ["head", "rows"])
TASKS = {
    # The head's own dropout, too.
    "classifier": lambda path: Task(
        make_classifier_head(3, dropout_prob=0.0), classifier_rows(path)),
    "pretraining": lambda path: Task(
        make_pretraining_head(CONFIG), pretraining_rows(path)),
    "squad": lambda path: Task(squad_head, squad_rows(path))}


def make_run(folder, num_replicas=1, **settings):
  return runs.Run(
      devices_lib.set_up(devices_lib.DeviceSettings(num_replicas, "cpu")),
      CONFIG, str(folder), seed=4, **settings)


def train(task, folder, num_replicas=1, num_train_steps=5, **settings):
  """Five steps of 4 rows in all; returns {variable: value}."""
  make_run(folder, num_replicas, **settings).train(
      task.head, task.rows,
      training.TrainPlan(4 // num_replicas, num_replicas, num_train_steps, 1),
      1e-2)
  reader = tf.train.load_checkpoint(str(folder))
  return {name: reader.get_tensor(name)
          for name in reader.get_variable_to_shape_map()}


def assert_close(found, expected, atol):
  assert set(found) == set(expected)
  for name, value in expected.items():
    np.testing.assert_allclose(found[name], value, atol=atol, err_msg=name)


@pytest.fixture
def seen_lengths(monkeypatch):
  """The sequence lengths that models are built for."""
  lengths = []
  class Model(modeling.BertModel):
    def __init__(self, *args, **kwargs):
      lengths.append(kwargs["input_ids"].shape.as_list()[1])
      super().__init__(*args, **kwargs)
  monkeypatch.setattr(modeling, "BertModel", Model)
  return lengths


@pytest.mark.slow
@pytest.mark.parametrize("name", [
    pytest.param("classifier", marks=pytest.mark.once("tf1")), "pretraining"])
def test_training_cut_is_training_uncut(tmp_path, seen_lengths, name):
  task = TASKS[name](str(tmp_path / "rows"))
  full = train(task, tmp_path / "full", length_multiple=0)
  assert set(seen_lengths) == {LENGTH}
  del seen_lengths[:]
  for num_replicas in (1, 2):
    cut = train(task, tmp_path / str(num_replicas), num_replicas,
                length_multiple=4)
    # Open until the batch comes; each replica has its own.
    assert set(seen_lengths) == {None}
    # As golden/train has it for strong weights.
    assert_close(cut, full, atol=3e-5)


@pytest.mark.once("tf2")
@pytest.mark.slow
def test_squad_training_keeps_its_padding(tmp_path, seen_lengths):
  task = TASKS["squad"](str(tmp_path / "rows"))
  full = train(task, tmp_path / "full", num_train_steps=2, length_multiple=0)
  same = train(task, tmp_path / "same", num_train_steps=2, length_multiple=4)
  assert set(seen_lengths) == {LENGTH}
  for name, value in full.items():
    np.testing.assert_array_equal(same[name], value)


@pytest.mark.once("tf2")
@pytest.mark.slow
def test_buckets_train_alike_and_go_on(tmp_path):
  """--bucket_by_length: 1 and 2 replicas, and a stop in between."""
  task = TASKS["classifier"](str(tmp_path / "rows"))
  one = train(task, tmp_path / "one", bucket_by_length=True,
              save_checkpoints_steps=2)
  assert_close(train(task, tmp_path / "two", 2, bucket_by_length=True), one,
               atol=3e-5)
  # What a run that stopped at step 2, in the midst of a window, had left.
  stopped = tmp_path / "stopped"
  stopped.mkdir()
  for path in (tmp_path / "one").glob("model.ckpt-2.*"):
    shutil.copy(str(path), str(stopped))
  (stopped / "checkpoint").write_text(
      'model_checkpoint_path: "model.ckpt-2"\n')
  assert_close(train(task, stopped, 2, bucket_by_length=True), one, atol=3e-5)


def predict(run, task, num_replicas, batch_size=3):
  batches = list(run.predict(task.head, task.rows, NUM_ROWS, batch_size,
                             title=None))
  return {name: np.concatenate([batch[name] for batch in batches])
          for name in batches[0]}


@pytest.mark.parametrize("window_rows", [100, 9])
@pytest.mark.parametrize("name", sorted(TASKS))
def test_predictions_cut_are_predictions_uncut(tmp_path, monkeypatch, name,
                                               window_rows):
  monkeypatch.setattr(by_length, "WINDOW_ROWS", window_rows)
  task = TASKS[name](str(tmp_path / "rows"))
  full = predict(make_run(tmp_path, length_multiple=0), task, 1)
  for num_replicas in (1, 2):
    cut = predict(make_run(tmp_path, num_replicas), task, num_replicas)
    assert_close(cut, full, atol=1e-5)
  if name == "squad":
    assert list(full["unique_ids"]) == list(range(NUM_ROWS))
    assert full["start_logits"].shape == (NUM_ROWS, LENGTH)
    assert (full["start_logits"] == PADDING_LOGIT).any()
    assert (full["start_logits"][-1] != PADDING_LOGIT).all()
    np.testing.assert_array_equal(full["start_logits"] == PADDING_LOGIT,
                                  cut["start_logits"] == PADDING_LOGIT)


def test_a_head_that_declares_nothing_gets_all_its_padding(tmp_path,
                                                           seen_lengths):
  task = TASKS["classifier"](str(tmp_path / "rows"))
  head = task.head
  predict(make_run(tmp_path), Task(lambda *args: head(*args), task.rows), 1)
  assert seen_lengths == [LENGTH]


SAMPLE = ROOT / "samples" / "squad"


def answer(folder, num_replicas, is_v2, **settings):
  """Answers the sample with random weights; returns the files."""
  tokenizer = tokenization.FullTokenizer(str(SAMPLE / "vocab.txt"))
  config = modeling.BertConfig.from_json_file(str(SAMPLE / "bert_config.json"))
  run = make_run(folder, num_replicas, **settings)._replace(bert_config=config)
  lengths = squad_data.FeatureSettings(80, 32, 24)
  examples = squad_examples.read_squad_examples(
      str(SAMPLE / "dev.json"), False, is_v2)
  folder.mkdir()
  path = str(folder / "eval.tf_record")
  num_rows = squad_pipeline.write_records(examples, tokenizer, lengths, path,
                                          False)
  batches = run.predict(
      squad_head, runs.Rows(path, squad_data.record_table(80, False)),
      num_rows, 8, title=None)
  writer = squad_pipeline.answer(
      examples, tokenizer, lengths,
      squad_answers.AnswerSettings(version_2_with_negative=is_v2), batches)
  names = [str(folder / name) for name in ("predictions", "nbest", "null")]
  writer.write(names[0], names[1], names[2] if is_v2 else None)
  return folder


@pytest.mark.parametrize("is_v2", [False, True])
def test_answers_are_byte_equal(tmp_path, is_v2):
  full = answer(tmp_path / "full", 1, is_v2, length_multiple=0)
  for num_replicas in (1, 2):
    cut = answer(tmp_path / str(num_replicas), num_replicas, is_v2)
    assert ((cut / "predictions").read_bytes()
            == (full / "predictions").read_bytes())
    one, other = (json.loads((folder / "nbest").read_text())
                  for folder in (full, cut))
    assert list(one) == list(other)
    for a, b in itertools.chain.from_iterable(
        zip(one[name], other[name]) for name in one):
      assert a["text"] == b["text"]
      assert a["start_logit"] == pytest.approx(b["start_logit"], abs=1e-5)
      assert a["probability"] == pytest.approx(b["probability"], abs=1e-5)
    if is_v2:
      assert json.loads((cut / "null").read_text()) == pytest.approx(
          json.loads((full / "null").read_text()), abs=1e-5)
