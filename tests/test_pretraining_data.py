"""Pre-training instances: the draws, the reference data, the records."""
import collections
import json
import os
import random

from benchmarks import plain_pretraining_data as plain
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from multigpu import records
import pretraining_samples as samples
from tasks import pretraining_data
from tasks import pretraining_masking as masking
from tasks import pretraining_pipeline as pipeline
from tasks import pretraining_records
from tasks.pretraining_pairs import InstanceSettings
import tokenization


# The draws.


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 7, 8, 9, 125, 300])
def test_shuffle_draws_as_random_does(size):
  expected, actual = list(range(size)), list(range(size))
  theirs, ours = random.Random(size), random.Random(size)
  theirs.shuffle(expected)
  masking.shuffle(actual, ours)
  assert actual == expected
  assert ours.getstate() == theirs.getstate()


@pytest.mark.parametrize("limit", [1, 2, 5, 64, 30522])
def test_draw_below_draws_as_randint_does(limit):
  theirs, ours = random.Random(limit), random.Random(limit)
  for _ in range(50):
    assert masking.draw_below(limit, ours) == theirs.randint(0, limit - 1)


def test_truncation_takes_from_the_longer_one():
  rng = random.Random(3)
  for length_a, length_b, limit in ((9, 30, 12), (30, 9, 12), (5, 5, 2),
                                    (1, 40, 2), (3, 4, 20)):
    tokens_a, tokens_b = list(range(length_a)), list(range(length_b))
    pretraining_data.truncate_seq_pair(tokens_a, tokens_b, limit, rng)
    assert len(tokens_a) + len(tokens_b) == min(limit, length_a + length_b)
    assert tokens_a and tokens_b
    for tokens in (tokens_a, tokens_b):  # what is left hangs together
      assert tokens == list(range(tokens[0], tokens[-1] + 1))
    if length_a + length_b > limit:
      assert abs(len(tokens_a) - len(tokens_b)) <= 1 or min(
          length_a, length_b) < limit // 2


def test_whole_words_are_masked_together():
  tokens = ["[CLS]", "un", "##known", "boat", "##s", "[SEP]", "##ed", "lamp",
            "[SEP]"]
  words = [{1, 2}, {3, 4, 6}, {7}]
  rng = random.Random(0)
  seen = set()
  for _ in range(200):
    masked, positions, labels = pretraining_data.create_masked_lm_predictions(
        tokens, 0.5, 4, samples.WORDS, rng, do_whole_word_mask=True)
    chosen = set(positions)
    assert all(word <= chosen or not word & chosen for word in words)
    assert positions == sorted(chosen)
    assert labels == [tokens[position] for position in positions]
    assert len(chosen) <= 4
    changed = {i for i, token in enumerate(tokens) if masked[i] != token}
    assert changed <= chosen
    seen.add(tuple(positions))
  assert seen == {(1, 2, 7), (3, 4, 6, 7)}  # four pieces at most


def test_masked_pieces_are_replaced_8_to_1_to_1():
  tokens = ["[CLS]"] + ["boat"] * 100 + ["[SEP]"]
  rng = random.Random(0)
  counts = collections.Counter()
  for _ in range(200):
    masked, positions, _ = pretraining_data.create_masked_lm_predictions(
        tokens, 0.15, 20, ["lamp"], rng)
    assert len(positions) == 15
    counts.update(masked[position] for position in positions)
  share = {token: count / 3000.0 for token, count in counts.items()}
  assert share["[MASK]"] == pytest.approx(0.8, abs=0.03)
  assert share["boat"] == pytest.approx(0.1, abs=0.03)
  assert share["lamp"] == pytest.approx(0.1, abs=0.03)


# Instances: against the reference data, and against a straightforward program.

SETTINGS = [
    InstanceSettings(32, 5, 3),
    InstanceSettings(32, 5, 3, do_whole_word_mask=True),
    InstanceSettings(5, 1, 2),
    InstanceSettings(6, 7, 2, short_seq_prob=1.0),
    InstanceSettings(128, 20, 2, masked_lm_prob=0.9),
    InstanceSettings(300, 50, 2, do_whole_word_mask=True, masked_lm_prob=0.0),
]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("num_documents,max_sentences", [(1, 1), (1, 30),
                                                         (12, 1), (9, 20)])
def test_instances_are_those_of_the_plain_program(
    tmp_path, settings, num_documents, max_sentences):
  vocab_file = samples.write_vocab(tmp_path)
  text = samples.write_corpus(tmp_path / "text", num_documents,
                      max_sentences=max_sentences)
  tokenizer = tokenization.FullTokenizer(vocab_file)
  theirs, ours = random.Random(7), random.Random(7)
  expected = plain.make_instances_plainly(
      plain.read_plainly(text, tokenizer), list(tokenizer.vocab), settings,
      theirs)
  actual = pretraining_data.create_training_instances(
      [text], tokenizer, settings.max_seq_length, settings.dupe_factor,
      settings.short_seq_prob, settings.masked_lm_prob,
      settings.max_predictions_per_seq, ours,
      do_whole_word_mask=settings.do_whole_word_mask)
  assert list(map(samples.as_tuple, actual)) == expected
  assert ours.getstate() == theirs.getstate()
  # The program, on ids and on disk, makes the same of it.
  output = tmp_path / "records"
  pipeline.create_records(
      samples.make_where([text], output, vocab_file, random_seed=7), settings)
  samples.assert_same(samples.read_records([str(output)], settings),
              samples.pad_instances(expected, tokenizer.vocab, settings))


GOLDEN = [("records_seed12345.npz", InstanceSettings(64, 10, 5)),
          ("records_seed12345_wwm.npz",
           InstanceSettings(64, 10, 5, do_whole_word_mask=True))]


@pytest.mark.parametrize("name,settings", GOLDEN)
def test_golden_records(shared, tmp_path, name, settings):
  folder = shared / "golden" / "pretraining"
  vocab = str(shared / "data" / "vocab" / "uncased" / "vocab.txt")
  expected = np.load(str(folder / name))
  output = tmp_path / "records"
  pipeline.create_records(
      samples.make_where([str(folder / "corpus.txt")], output, vocab), settings)
  actual = samples.read_records([str(output)], settings)
  samples.assert_same(actual, {key: expected[key] for key in expected.files})
  # The same through Google's functions.
  tokenizer = tokenization.FullTokenizer(vocab)
  instances = pretraining_data.create_training_instances(
      [str(folder / "corpus.txt")], tokenizer, 64, 5, 0.1, 0.15, 10,
      random.Random(12345), do_whole_word_mask=settings.do_whole_word_mask)
  pretraining_data.write_instance_to_example_files(
      instances, tokenizer, 64, 10, [str(output)])
  samples.assert_same(samples.read_records([str(output)], settings), actual)


def count_statistics(instances):
  """Returns numbers that golden/pretraining/statistics.json has per seed."""
  predictions = [
      (instance.tokens[position], label) for instance in instances
      for position, label in zip(instance.masked_lm_positions,
                                 instance.masked_lm_labels)]
  lengths = [len(instance.tokens) for instance in instances]
  return {
      "instances": len(instances),
      "predictions": len(predictions),
      "tokens_without_padding": sum(lengths),
      "share_replaced_by_MASK": sum(
          token == "[MASK]" for token, _ in predictions) / len(predictions),
      "share_kept": sum(
          token == label for token, label in predictions) / len(predictions),
      "next_sentence_random_share": sum(
          instance.is_random_next for instance in instances) / len(instances),
      "share_full_length": lengths.count(max(lengths)) / len(lengths),
      "segment_b_length_mean": sum(
          sum(instance.segment_ids) for instance in instances) / len(instances)}


def test_golden_statistics(shared):
  folder = shared / "golden" / "pretraining"
  tokenizer = tokenization.FullTokenizer(
      str(shared / "data" / "vocab" / "uncased" / "vocab.txt"))
  cases = json.loads((folder / "statistics.json").read_text())
  assert len(cases) == 4
  for case in cases:
    settings = dict(case["settings"])
    assert settings.pop("vocab") == "uncased"
    for expected in case["per_seed"][:3]:
      actual = count_statistics(pretraining_data.create_training_instances(
          [str(folder / "corpus.txt")], tokenizer,
          rng=random.Random(expected["seed"]), **settings))
      # Not one draw is different, so the numbers are the same, not just near.
      assert actual == pytest.approx(
          {name: expected[name] for name in actual}, rel=1e-12), settings


def test_random_words_may_be_special_as_in_googles_program(shared):
  # Case 44: the markers are in the vocabulary that random words come from.
  vocab = str(shared / "cases" / "_shared" / "vocab.txt")
  tokenizer = tokenization.FullTokenizer(vocab)
  instances = pretraining_data.create_training_instances(
      [str(shared / "golden" / "pretraining" / "corpus.txt")], tokenizer, 64,
      60, 0.1, 0.15, 10, random.Random(12345))
  shown = [instance.tokens[position] for instance in instances
           for position in instance.masked_lm_positions]
  special = sum(token in ("[PAD]", "[CLS]", "[SEP]") for token in shown)
  # Three of about 158 entries, in a tenth of the places.
  assert special / len(shown) == pytest.approx(0.1 * 3 / 158, rel=0.5)


# Records.


def test_encoded_records_are_read_by_tensorflow(tmp_path):
  edges = [0, 1, 127, 128, 16383, 16384, 30521, 2**21 - 1, 2**21, 2**31 - 1]
  table = {"wide": ((len(edges),), "int64"), "small": ((300,), "int64"),
           "one": ((1,), "int64"), "weights": ((3,), "float32")}
  rng = np.random.RandomState(0)
  columns = {
      "wide": np.array([rng.permutation(edges) for _ in range(9)]),
      "small": rng.randint(0, 2, (9, 300)) > 0, "one": np.arange(9)[:, None],
      "weights": rng.rand(9, 3)}
  data, ends = pretraining_records.encode_records(columns, table)
  path = str(tmp_path / "records")
  with open(path, "wb") as writer:
    writer.write(data.tobytes())
  assert len(ends) == 9 and ends[-1] == len(data)
  found = list(tf.io.tf_record_iterator(path))  # checks both checksums
  assert len(found) == 9
  for row, record in enumerate(found):
    values = {name: column[row].tolist() for name, column in columns.items()}
    # The same message as multigpu.records makes, whatever the map's order.
    assert (tf.train.Example.FromString(record)
            == tf.train.Example.FromString(records.serialize(values, table)))
    assert len(record) == len(records.serialize(values, table))


def test_a_damaged_record_would_be_seen(tmp_path):
  table = {"one": ((1,), "int64")}
  data, _ = pretraining_records.encode_records(
      {"one": np.array([[5]])}, table)
  for position in range(len(data)):
    damaged = data.copy()
    damaged[position] ^= 1
    path = str(tmp_path / "records")
    with open(path, "wb") as writer:
      writer.write(damaged.tobytes())
    with pytest.raises(tf.errors.DataLossError):
      list(tf.io.tf_record_iterator(path))


def test_write_instance_to_example_files_deals_in_turn(tmp_path):
  tokenizer = tokenization.FullTokenizer(samples.write_vocab(tmp_path))
  text = samples.write_corpus(tmp_path / "text", 5)
  instances = pretraining_data.create_training_instances(
      [text], tokenizer, 16, 2, 0.1, 0.15, 3, random.Random(1))
  paths = [str(tmp_path / name) for name in "abc"]
  pretraining_data.write_instance_to_example_files(
      instances, tokenizer, 16, 3, paths)
  settings = InstanceSettings(16, 3)
  expected = samples.pad_instances(
      list(map(samples.as_tuple, instances)), tokenizer.vocab, settings)
  for number, path in enumerate(paths):
    samples.assert_same(samples.read_records([path], settings),
                {name: rows[number::3] for name, rows in expected.items()})
  with pytest.raises(ValueError):
    pretraining_data.write_instance_to_example_files(
        instances, tokenizer, 8, 3, [str(tmp_path / "short")])
  assert not [name for name in os.listdir(str(tmp_path)) if "short" in name]
