"""Google's Python interface for making pre-training instances.

All in memory, pieces as str. The program itself (tasks/pretraining_pipeline)
makes the same choices through the same functions, but on ids and on disk.
"""
import collections
import itertools
import random
from typing import (Any, Callable, Dict, Iterable, List, Sequence, Tuple)

import numpy as np

from tasks import pretraining_masking as masking
from tasks.pretraining_corpus import read_documents
from tasks.pretraining_files import OutputFiles
from tasks.pretraining_pairs import (Documents, InstanceSettings, Pair,
                                     Sentences, draw_pairs)
from tasks.pretraining_records import encode_records, record_table

__all__ = [
    "InstanceSettings", "MaskedLmInstance", "TrainingInstance",
    "create_instances_from_document", "create_masked_lm_predictions",
    "create_training_instances", "record_table", "truncate_seq_pair",
    "write_instance_to_example_files"]

# Instances that are encoded at a time.
_BATCH_INSTANCES = 1024


# A position that is to be predicted, and the piece that was there.
MaskedLmInstance = collections.namedtuple("MaskedLmInstance",
                                          ["index", "label"])


class TrainingInstance:
  """One pair of texts with masked pieces.

  Attributes:
    tokens: [CLS] a [SEP] b [SEP], masked.
    segment_ids: 0 for the first text, 1 for the second; its length.
    masked_lm_positions: what is to be predicted, ascending.
    masked_lm_labels: the pieces that were there.
    is_random_next: the second text does not follow on the first.
  """

  def __init__(self, tokens: List[str], segment_ids: List[int],
               masked_lm_positions: List[int], masked_lm_labels: List[str],
               is_random_next: bool):
    self.tokens = tokens
    self.segment_ids = segment_ids
    self.is_random_next = is_random_next
    self.masked_lm_positions = masked_lm_positions
    self.masked_lm_labels = masked_lm_labels

  def __repr__(self) -> str:
    return "TrainingInstance(%s)" % ", ".join(
        "%s=%r" % item for item in sorted(vars(self).items()))


def create_training_instances(
    input_files: Sequence[str], tokenizer: Any, max_seq_length: int,
    dupe_factor: int, short_seq_prob: float, masked_lm_prob: float,
    max_predictions_per_seq: int, rng: random.Random, *,
    do_whole_word_mask: bool = False) -> List[TrainingInstance]:
  """Makes all instances of some text files, in memory.

  Args:
    input_files: one sentence a line, a blank line between documents.
    tokenizer: a FullTokenizer, or anything with its `tokenize` and `vocab`.
    max_seq_length, dupe_factor, short_seq_prob, masked_lm_prob,
      max_predictions_per_seq, do_whole_word_mask: see the flags.
    rng: the source of all choices.

  Returns:
    The instances, shuffled.

  Raises:
    UserError: a file cannot be read or is not UTF-8 text.
  """
  documents = read_documents(input_files, tokenizer)
  masking.shuffle(documents, rng)
  words = list(tokenizer.vocab.keys())
  instances: List[TrainingInstance] = []
  for _ in range(dupe_factor):
    for index in range(len(documents)):
      instances += create_instances_from_document(
          documents, index, max_seq_length, short_seq_prob, masked_lm_prob,
          max_predictions_per_seq, words, rng,
          do_whole_word_mask=do_whole_word_mask)
  masking.shuffle(instances, rng)
  return instances


def create_instances_from_document(
    all_documents: Sequence[Sequence[Sequence[str]]], document_index: int,
    max_seq_length: int, short_seq_prob: float, masked_lm_prob: float,
    max_predictions_per_seq: int, vocab_words: Sequence[str],
    rng: random.Random, *,
    do_whole_word_mask: bool = False) -> List[TrainingInstance]:
  """Makes the instances of one document; see create_training_instances.

  Args:
    all_documents: lists of sentences, which are lists of pieces.
    document_index: the document; random next sentences come from the others.
    vocab_words: what random words are drawn from.
    max_seq_length, short_seq_prob, masked_lm_prob, max_predictions_per_seq,
      rng, do_whole_word_mask: as there.

  Returns:
    The instances, in order.
  """
  documents = _ListedDocuments(all_documents)
  settings = InstanceSettings(max_seq_length=max_seq_length,
                              short_seq_prob=short_seq_prob)
  instances = []
  for pair in draw_pairs(documents, document_index, settings, rng):
    tokens, segment_ids = documents.join(pair)
    tokens, positions, labels = create_masked_lm_predictions(
        tokens, masked_lm_prob, max_predictions_per_seq, vocab_words, rng,
        do_whole_word_mask=do_whole_word_mask)
    instances.append(TrainingInstance(tokens, segment_ids, positions, labels,
                                      pair.is_random_next))
  return instances


class _ListedDocuments(Documents):
  """Documents as lists of sentences, sentences as lists of pieces."""

  def __init__(self, documents: Sequence[Sequence[Sequence[str]]]):
    self._documents = documents

  def __len__(self) -> int:
    return len(self._documents)

  def sentences(self, index: int) -> Sentences:
    """Returns the sentences of a document; pieces count from its start."""
    lengths = list(map(len, self._documents[index]))
    return Sentences([0] + list(itertools.accumulate(lengths)), 0, len(lengths))

  def join(self, pair: Pair) -> Tuple[List[str], List[int]]:
    """Returns the tokens of a pair, with markers, and their segment ids."""
    text_a = self._pieces(pair.document_a, pair.start_a, pair.end_a)
    text_b = self._pieces(pair.document_b, pair.start_b, pair.end_b)
    return (["[CLS]"] + text_a + ["[SEP]"] + text_b + ["[SEP]"],
            [0] * (len(text_a) + 2) + [1] * (len(text_b) + 1))

  def _pieces(self, index: int, start: int, end: int) -> List[str]:
    pieces = itertools.chain.from_iterable(self._documents[index])
    return list(itertools.islice(pieces, start, end))


def create_masked_lm_predictions(
    tokens: Sequence[str], masked_lm_prob: float, max_predictions_per_seq: int,
    vocab_words: Sequence[str], rng: random.Random, *,
    do_whole_word_mask: bool = False) -> Tuple[List[str], List[int], List[str]]:
  """Masks some of the tokens.

  Args:
    tokens: pieces; [CLS] and [SEP] stay as they are.
    masked_lm_prob: share of the tokens to mask, at least one.
    max_predictions_per_seq: at most so many.
    vocab_words: what random words are drawn from.
    rng: the source of all choices.
    do_whole_word_mask: mask all pieces of a word or none.

  Returns:
    The tokens with the masks, the masked positions, the pieces there.
  """
  kinds = bytes([_get_kind(token, do_whole_word_mask) for token in tokens])
  num_to_predict = masking.count_predictions(
      len(tokens), masked_lm_prob, max_predictions_per_seq)
  masked = list(tokens)
  positions = []
  for position, replacement in masking.draw_predictions(
      kinds, num_to_predict, len(vocab_words), rng):
    positions.append(position)
    if replacement == masking.USE_MASK:
      masked[position] = "[MASK]"
    elif replacement != masking.KEEP:
      masked[position] = vocab_words[replacement]
  return masked, positions, [tokens[position] for position in positions]


def _get_kind(token: str, do_whole_word_mask: bool) -> int:
  if token in ("[CLS]", "[SEP]"):
    return masking.SPECIAL
  if do_whole_word_mask and token.startswith("##"):
    return masking.INNER
  return masking.WORD


def truncate_seq_pair(tokens_a: List[str], tokens_b: List[str],
                      max_num_tokens: int, rng: random.Random) -> None:
  """Shortens the two lists in place to `max_num_tokens` together.

  The longer one loses a token at a time, from its front or back at random.
  """
  front_a, back_a, front_b, back_b = masking.draw_truncation(
      len(tokens_a), len(tokens_b), max_num_tokens, rng)
  for tokens, front, back in ((tokens_a, front_a, back_a),
                              (tokens_b, front_b, back_b)):
    del tokens[len(tokens) - back:]
    del tokens[:front]


def write_instance_to_example_files(
    instances: Iterable[TrainingInstance], tokenizer: Any, max_seq_length: int,
    max_predictions_per_seq: int, output_files: Sequence[str]) -> None:
  """Writes instances as records, dealt to the files in turn.

  Args:
    instances: of at most these lengths.
    tokenizer: has `convert_tokens_to_ids`.
    max_seq_length, max_predictions_per_seq: what the records are padded to.
    output_files: they appear when all are complete.

  Raises:
    UserError: a file cannot be written.
    ValueError: an instance is too long.
  """
  table = record_table(max_seq_length, max_predictions_per_seq)
  instances = iter(instances)
  num_written = 0
  with OutputFiles(list(output_files), "output_file") as outputs:
    while True:
      batch = list(itertools.islice(instances, _BATCH_INSTANCES))
      if not batch:
        return
      records, ends = encode_records(
          _make_columns(batch, tokenizer.convert_tokens_to_ids, table), table)
      for record in np.split(records, ends[:-1]):
        outputs.write(num_written % len(output_files), record)
        num_written += 1


def _make_columns(instances: List[TrainingInstance],
                  convert: Callable[[List[str]], List[int]], table: Any
                  ) -> Dict[str, Any]:
  """Returns {feature name: [instances, values]}, padded with zeros."""
  columns = {name: np.zeros((len(instances),) + shape, dtype)
             for name, (shape, dtype) in table.items()}
  for row, instance in enumerate(instances):
    features: Dict[str, List[Any]] = {
        "input_ids": convert(instance.tokens),
        "input_mask": [1] * len(instance.tokens),
        "segment_ids": instance.segment_ids,
        "masked_lm_positions": instance.masked_lm_positions,
        "masked_lm_ids": convert(instance.masked_lm_labels),
        "masked_lm_weights": [1.0] * len(instance.masked_lm_positions),
        "next_sentence_labels": [int(instance.is_random_next)]}
    for name, values in features.items():
      columns[name][row, :len(values)] = values
  return columns
