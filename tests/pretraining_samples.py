"""Made-up corpora for the tests of pre-training data, and their records."""
import random

from benchmarks import plain_pretraining_data as plain
import numpy as np
import tensorflow.compat.v1 as tf

from multigpu import records
from tasks import pretraining_data
from tasks import pretraining_pipeline as pipeline

WORDS = ("the boat tower river lamp note stone north road wind went came saw "
         "took near with and then . ,").split()
MARKERS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write_vocab(folder):
  path = str(folder / "vocab.txt")
  pieces = MARKERS + WORDS + ["##s", "##ed", "##er", "un", "##known"]
  with open(path, "w") as writer:
    writer.write("\n".join(pieces) + "\n")
  return path


def write_corpus(path, num_documents, seed=1, max_sentences=7, max_words=9):
  """Writes documents of one sentence and more, some words of several pieces."""
  rng = random.Random(seed)
  with open(str(path), "w") as writer:
    for _ in range(num_documents):
      for _ in range(rng.randint(1, max_sentences)):
        words = [rng.choice(WORDS[:-2]) + rng.choice(["", "", "s", "ed", "er"])
                 for _ in range(rng.randint(1, max_words))]
        writer.write(" ".join(words) + " .\n")
      writer.write("\n")
  return str(path)


def read_records(paths, settings):
  """Returns the records of some files as {name: array}, in order."""
  table = pretraining_data.record_table(settings.max_seq_length,
                                        settings.max_predictions_per_seq)
  with tf.Graph().as_default(), tf.Session() as session:
    batch = tf.data.make_one_shot_iterator(
        tf.data.TFRecordDataset(paths).batch(1 << 20)).get_next()
    return session.run(records.parse_batch(batch, table))


def assert_same(actual, expected):
  assert set(actual) == set(expected)
  for name in expected:
    np.testing.assert_array_equal(actual[name], expected[name], name)


def make_where(input_files, output, vocab, **changes):
  outputs = output if isinstance(output, list) else [str(output)]
  return pipeline.CorpusSettings(input_files, outputs, vocab)._replace(
      **changes)


def pad_instances(instances, vocab, settings):
  """Returns the records of plain instances as {name: array}."""
  rows = [plain.pad_plainly(instance, vocab, settings)
          for instance in instances]
  return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def as_tuple(instance):
  return (instance.tokens, instance.masked_lm_positions,
          instance.masked_lm_labels, instance.segment_ids,
          instance.is_random_next)
