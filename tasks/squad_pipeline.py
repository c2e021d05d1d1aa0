"""SQuAD from end to end but for the model: file to records, logits to scores.

Everything streams: neither all features nor all logits are in memory at once.
"""
import collections
import itertools
import logging
import os
import sys
from typing import Any, Dict, Iterable, Iterator, Optional, Sequence

import numpy as np

from multigpu import examples as wire
from multigpu.records import RecordWriter
import tokenization
from tasks import feature_rows
from tasks import record_cache
from tasks import squad_metrics
from tasks import squad_pieces
from tasks import squad_rows
from tasks import squad_windows
from tasks.squad_answers import (AnswerSettings, AnswerWriter, Group,
                                 RawResult, iterate_answers)
from tasks.squad_data import (FIRST_UNIQUE_ID, FeatureSettings, InputFeatures,
                              SquadExample, iterate_features, record_table)
from tasks.squad_rows import SquadRowEncoder

_LOG = logging.getLogger(__name__)

# With fewer questions one process is done before others have started.
_MIN_QUESTIONS = 10000


def prepare_records(examples: Sequence[SquadExample], tokenizer: Any,
                    settings: FeatureSettings, path: str, is_training: bool,
                    num_workers: int = 1) -> int:
  """Makes the record file, unless it is there already, made of the same.

  Args, result, errors: see write_records.
  """
  return record_cache.use_or_make(
      path, record_cache.fingerprint(
          _describe_rows(examples, tokenizer, settings, is_training),
          [tokenization, squad_pieces, squad_rows, squad_windows, wire,
           sys.modules[__name__]]),
      lambda: write_records(examples, tokenizer, settings, path, is_training,
                            num_workers))


def _describe_rows(examples: Sequence[SquadExample], tokenizer: Any,
                   settings: FeatureSettings, is_training: bool
                   ) -> Iterator[Any]:
  """Yields all that the rows are made of, for a fingerprint.

  The examples stand for the file and for all that decides how it is read.
  """
  yield record_cache.describe_tokenizer(tokenizer)
  yield tuple(settings), is_training
  document = None
  for example in examples:
    # Questions that share a document tell it once, where they follow on it.
    if document is not example.doc_tokens:
      document = example.doc_tokens
      yield document
    yield example.question_text
    if is_training:
      yield (example.orig_answer_text, example.start_position,
             example.end_position, example.is_impossible)


def write_records(examples: Sequence[SquadExample], tokenizer: Any,
                  settings: FeatureSettings, path: str, is_training: bool,
                  num_workers: int = 1) -> int:
  """Featurizes examples into a TFRecord file.

  Args:
    examples: the questions; see iterate_features.
    tokenizer: a FullTokenizer.
    settings: lengths of the windows.
    path: the file; it appears when it is whole, and is the same for any
      number of workers.
    is_training: with the answers.
    num_workers: processes to work with; few questions are done in this one.

  Returns:
    The number of features.

  Raises:
    UserError: wrong settings or vocabulary; a worker process was killed.
  """
  encoder = SquadRowEncoder(tokenizer, settings, is_training)
  labor = feature_rows.Labor(num_workers, _MIN_QUESTIONS, " questions")
  id_table: Any = {"unique_ids": ((), "int64")}
  with RecordWriter(path, record_table(settings.max_seq_length,
                                       is_training)) as writer:
    rows = feature_rows.iterate_rows(examples, encoder, labor)
    for unique_id, entries in enumerate(rows, FIRST_UNIQUE_ID):
      id_entry = wire.encode_entries({"unique_ids": [unique_id]}, id_table)
      writer.write_serialized(wire.wrap_entries(id_entry + entries))
  return writer.num_records


def group_by_question(examples: Sequence[SquadExample],
                      features: Iterable[InputFeatures],
                      batches: Iterable[Dict[str, np.ndarray]]
                      ) -> Iterator[Group]:
  """Pairs features with their logits, question by question.

  Args:
    examples: the questions.
    features: of all of them, in order; each question has at least one.
    batches: unique_ids [rows], start_logits and end_logits [rows, length], the
      rows in the order of the features.

  Raises:
    ValueError: the rows are not these or not in this order.
  """
  results = (
      RawResult(int(unique_id), start_logits, end_logits)
      for batch in batches
      for unique_id, start_logits, end_logits in zip(
          batch["unique_ids"], batch["start_logits"], batch["end_logits"]))
  for example_index, pairs in itertools.groupby(
      _checked_pairs(features, results),
      key=lambda pair: pair[0].example_index):
    question_features, question_results = zip(*pairs)
    yield examples[example_index], question_features, question_results


def _checked_pairs(features, results):
  for feature, result in itertools.zip_longest(features, results):
    if (feature is None or result is None
        or feature.unique_id != result.unique_id):
      raise ValueError(
          "Rows out of order: logits of feature {}, expected {}.".format(
              getattr(result, "unique_id", None),
              getattr(feature, "unique_id", None)))
    yield feature, result


def answer(examples: Sequence[SquadExample], tokenizer: Any,
           feature_settings: FeatureSettings, answer_settings: AnswerSettings,
           batches: Iterable[Dict[str, np.ndarray]]) -> AnswerWriter:
  """Answers all examples from the stream of their logits."""
  # The features are made a second time instead of being kept: that is far
  # cheaper than the model, and memory stays bounded.
  features = iterate_features(examples, tokenizer, feature_settings,
                              show_progress=False)
  writer = AnswerWriter()
  for result in iterate_answers(
      group_by_question(examples, features, batches), answer_settings):
    writer.add(result)
  return writer


def score(writer: AnswerWriter, predict_file: str,
          version_2_with_negative: bool
          ) -> "collections.OrderedDict[str, Any]":
  """Scores answers against those in the file, see `squad_metrics.evaluate`."""
  return squad_metrics.evaluate(
      predict_file, writer.predictions,
      writer.null_odds if version_2_with_negative else None,
      version_2_with_negative)


def write_answers(writer: AnswerWriter, output_dir: str, predict_file: str,
                  version_2_with_negative: bool
                  ) -> "Optional[collections.OrderedDict[str, Any]]":
  """Writes the result files; returns EM and F1 where they can be known."""
  def path(name):
    return os.path.join(output_dir, name + ".json")

  writer.write(path("predictions"), path("nbest_predictions"),
               path("null_odds") if version_2_with_negative else None)
  _LOG.info("Answers are in %s", path("predictions"))
  if not squad_metrics.has_answers(predict_file, version_2_with_negative):
    _LOG.info("%s does not hold the answers of all its questions: no scores.",
              predict_file)
    return None
  metrics = score(writer, predict_file, version_2_with_negative)
  squad_metrics.write_results(path("eval_results"), metrics)
  _LOG.info("Scores are in %s", path("eval_results"))
  return metrics
