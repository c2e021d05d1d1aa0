"""Classification examples -> record files."""
import sys
from typing import Any, Iterator, Sequence

from multigpu import examples as wire
from multigpu.records import RecordWriter
from tasks import classifier_data
from tasks import feature_rows
from tasks import record_cache
from tasks.classifier_data import Labels, PaddingInputExample
import tokenization

# With fewer examples one process is done before others have started.
_MIN_EXAMPLES = 20000


def prepare_records(examples: Sequence[Any], labels: Labels,
                    max_seq_length: int, tokenizer: Any, path: str,
                    num_workers: int = 1) -> int:
  """Makes the record file, unless it is there already, made of the same.

  Args, result, errors: see write_records.
  """
  return record_cache.use_or_make(
      path, record_cache.fingerprint(
          _describe_rows(examples, labels, max_seq_length, tokenizer),
          [tokenization, classifier_data, wire, sys.modules[__name__]]),
      lambda: write_records(examples, labels, max_seq_length, tokenizer, path,
                            num_workers))


def _describe_rows(examples: Sequence[Any], labels: Labels,
                   max_seq_length: int, tokenizer: Any) -> Iterator[Any]:
  """Yields all that the rows are made of, for a fingerprint.

  The examples stand for the file and for all that decides how it is read.
  """
  yield record_cache.describe_tokenizer(tokenizer)
  yield tuple(classifier_data.as_label_set(labels)), max_seq_length
  for example in examples:
    if isinstance(example, PaddingInputExample):
      yield "padding"
    else:
      yield example.text_a, example.text_b, example.label


def write_records(examples: Sequence[Any], labels: Labels, max_seq_length: int,
                  tokenizer: Any, path: str, num_workers: int = 1) -> int:
  """Featurizes examples into a TFRecord file.

  Args:
    examples: InputExamples and PaddingInputExamples.
    labels: a LabelSet, or the list of class names.
    max_seq_length: in word pieces, with the markers.
    tokenizer: a FullTokenizer.
    path: the file; it appears when it is whole, and is the same for any
      number of workers.
    num_workers: processes to work with; few examples are done in this one.

  Returns:
    The number of examples.

  Raises:
    UserError: a length without room for text, an unknown label, a vocabulary
      without the markers; a worker process was killed.
  """
  encoder = classifier_data.ClassifierRowEncoder(labels, max_seq_length,
                                                 tokenizer)
  labor = feature_rows.Labor(num_workers, _MIN_EXAMPLES)
  # This logs them; the encoder does not, it may be in another process.
  list(classifier_data.iterate_features(
      examples[:classifier_data.NUM_LOGGED_EXAMPLES], labels, max_seq_length,
      tokenizer, show_progress=False))
  table = classifier_data.record_table(max_seq_length, labels)
  with RecordWriter(path, table) as writer:
    for entries in feature_rows.iterate_rows(examples, encoder, labor):
      writer.write_serialized(wire.wrap_entries(entries))
  return writer.num_records
