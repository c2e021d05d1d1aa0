"""SQuAD from end to end but for the model: file to records, logits to scores.

Everything streams: neither all features nor all logits are in memory at once.
"""
import collections
import itertools
import logging
import os
from typing import Any, Dict, Iterable, Iterator, Optional, Sequence

import numpy as np

from multigpu.records import RecordWriter
from tasks import squad_metrics
from tasks.squad_answers import (AnswerSettings, AnswerWriter, Group,
                                 RawResult, iterate_answers)
from tasks.squad_data import (FeatureSettings, InputFeatures, SquadExample,
                              feature_to_record, iterate_features, record_table)

_LOG = logging.getLogger(__name__)


def write_records(examples: Sequence[SquadExample], tokenizer: Any,
                  settings: FeatureSettings, path: str,
                  is_training: bool) -> int:
  """Featurizes examples into a TFRecord file; returns the feature count."""
  table = record_table(settings.max_seq_length, is_training)
  with RecordWriter(path, table) as writer:
    for feature in iterate_features(examples, tokenizer, settings, is_training):
      writer.write(feature_to_record(feature, is_training))
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
  metrics = squad_metrics.evaluate(
      predict_file, writer.predictions,
      writer.null_odds if version_2_with_negative else None,
      version_2_with_negative)
  squad_metrics.write_results(path("eval_results"), metrics)
  _LOG.info("Scores are in %s", path("eval_results"))
  return metrics
