r"""A straightforward program that makes pre-training records.

Each step as one would first write it: a tokenizer that goes character by
character, everything in lists of strings, tf.train.Example messages. The
benchmark measures against it, and tests compare with it.

  python benchmarks/plain_pretraining_data.py INPUT OUTPUT VOCAB DUPE_FACTOR \
      MAX_SEQ_LENGTH
"""
import os
import random
import sys
from typing import Any, List

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from tasks.pretraining_pairs import InstanceSettings  # noqa: E402


def read_plainly(input_file, tokenizer):
  """Returns documents as lists of sentences, sentences as lists of pieces."""
  documents: List[Any] = [[]]
  with open(input_file, encoding="utf-8", newline="\n") as reader:
    for line in reader:
      line = line.strip()
      if not line:
        documents.append([])
      pieces = tokenizer.tokenize(line)
      if pieces:
        documents[-1].append(pieces)
  return [document for document in documents if document]


def make_instances_plainly(documents, words, settings, rng):
  """Returns (tokens, segment ids, positions, labels, is random) of all."""
  documents = list(documents)
  rng.shuffle(documents)
  instances = []
  for _ in range(settings.dupe_factor):
    for index in range(len(documents)):
      for text_a, text_b, is_random in cut_plainly(documents, index, settings,
                                                   rng):
        tokens = ["[CLS]"] + text_a + ["[SEP]"] + text_b + ["[SEP]"]
        segment_ids = [0] * (len(text_a) + 2) + [1] * (len(text_b) + 1)
        instances.append(
            mask_plainly(tokens, words, settings, rng)
            + (segment_ids, is_random))
  rng.shuffle(instances)
  return instances


def cut_plainly(documents, index, settings, rng):
  """Yields the truncated pairs of one document."""
  room = settings.max_seq_length - 3
  target = room
  if rng.random() < settings.short_seq_prob:
    target = rng.randint(2, room)
  document, chunk, i = documents[index], [], 0
  while i < len(document):
    chunk.append(document[i])
    if i == len(document) - 1 or sum(map(len, chunk)) >= target:
      split = 1 if len(chunk) == 1 else rng.randint(1, len(chunk) - 1)
      text_a = [piece for sentence in chunk[:split] for piece in sentence]
      is_random = len(chunk) == 1 or rng.random() < 0.5
      if is_random:
        text_b = pick_plainly(documents, index, target - len(text_a), rng)
        i -= len(chunk) - split
      else:
        text_b = [piece for sentence in chunk[split:] for piece in sentence]
      while len(text_a) + len(text_b) > room:
        longer = text_a if len(text_a) > len(text_b) else text_b
        longer.pop(0 if rng.random() < 0.5 else -1)
      yield text_a, text_b, is_random
      chunk = []
    i += 1


def pick_plainly(documents, index, length, rng):
  """Returns a text of another document."""
  for _ in range(10):
    other = rng.randint(0, len(documents) - 1)
    if other != index:
      break
  text = []
  start = rng.randint(0, len(documents[other]) - 1)
  for sentence in documents[other][start:]:
    text.extend(sentence)
    if len(text) >= length:
      break
  return text


def mask_plainly(tokens, words, settings, rng):
  """Returns the masked tokens, positions and labels."""
  groups: List[Any] = []
  for position, token in enumerate(tokens):
    if token in ("[CLS]", "[SEP]"):
      continue
    if settings.do_whole_word_mask and groups and token.startswith("##"):
      groups[-1].append(position)
    else:
      groups.append([position])
  rng.shuffle(groups)
  wanted = min(settings.max_predictions_per_seq,
               max(1, int(round(len(tokens) * settings.masked_lm_prob))))
  masked, labels = list(tokens), {}  # type: Any, Any
  for group in groups:
    if len(labels) + len(group) > wanted:
      continue
    for position in group:
      labels[position] = tokens[position]
      if rng.random() < 0.8:
        masked[position] = "[MASK]"
      elif rng.random() >= 0.5:
        masked[position] = words[rng.randint(0, len(words) - 1)]
  positions = sorted(labels)
  return masked, positions, [labels[position] for position in positions]


def pad_plainly(instance, vocab, settings):
  """Returns the features of an instance as lists."""
  tokens, positions, labels, segment_ids, is_random = instance
  padding = [0] * (settings.max_seq_length - len(tokens))
  rest = [0] * (settings.max_predictions_per_seq - len(positions))
  return {
      "input_ids": [vocab[token] for token in tokens] + padding,
      "input_mask": [1] * len(tokens) + padding,
      "segment_ids": segment_ids + padding,
      "masked_lm_positions": positions + rest,
      "masked_lm_ids": [vocab[label] for label in labels] + rest,
      "masked_lm_weights": [1.0] * len(positions) + [0.0] * len(rest),
      "next_sentence_labels": [int(is_random)]}


def run_plainly(input_file, output_file, vocab_file, settings, seed=12345):
  """The straightforward program, from the text to the records."""
  import tensorflow.compat.v1 as tf

  from benchmarks.squad_features import PlainTokenizer
  tokenizer = PlainTokenizer(vocab_file)
  documents = read_plainly(input_file, tokenizer)
  instances = make_instances_plainly(documents, list(tokenizer.vocab), settings,
                                     random.Random(seed))
  with tf.io.TFRecordWriter(output_file) as writer:
    for instance in instances:
      example = tf.train.Example()
      features = pad_plainly(instance, tokenizer.vocab, settings)
      for name, values in features.items():
        feature = example.features.feature[name]
        if name == "masked_lm_weights":
          feature.float_list.value.extend(values)
        else:
          feature.int64_list.value.extend(values)
      writer.write(example.SerializeToString())


if __name__ == "__main__":
  run_plainly(sys.argv[1], sys.argv[2], sys.argv[3], InstanceSettings(
      dupe_factor=int(sys.argv[4]), max_seq_length=int(sys.argv[5])))
