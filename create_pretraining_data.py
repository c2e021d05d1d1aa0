r"""Makes pre-training records (masked LM, next sentence) of plain text.

The command line of Google's create_pretraining_data.py:

    python create_pretraining_data.py \
      --input_file='corpus/*.txt' --output_file=tf_examples.tfrecord \
      --vocab_file=uncased_L-12_H-768_A-12/vocab.txt \
      --max_seq_length=128 --max_predictions_per_seq=20 \
      --masked_lm_prob=0.15 --random_seed=12345 --dupe_factor=5

The text has one sentence a line and a blank line between documents; the end of
a file does not end a document. This file holds the flags and the wiring; the
work is done in tasks/pretraining_*.py.
"""
import functools
import sys

from absl import app
from absl import flags
from absl import logging

from multigpu import file_kinds
from multigpu import flag_checks
from multigpu import interruption
from multigpu import vocabulary
from multigpu.errors import UserError
from tasks import pretraining_data
from tasks import pretraining_files
from tasks import pretraining_pipeline
from tasks import workers
from tasks.pretraining_data import MaskedLmInstance, TrainingInstance
from tasks.pretraining_data import truncate_seq_pair
from tasks.pretraining_data import write_instance_to_example_files

__all__ = [
    "MaskedLmInstance", "TrainingInstance", "create_instances_from_document",
    "create_masked_lm_predictions", "create_training_instances", "main",
    "truncate_seq_pair", "write_instance_to_example_files"]

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "input_file", None,
    "Text files in UTF-8: names or globs, separated by commas. One sentence a "
    "line, the sentences of a document on consecutive lines, a blank line "
    "between documents. The end of a file does not end a document: let each "
    "file end with a blank line.")
flags.DEFINE_string(
    "output_file", None,
    "TFRecord files to write, separated by commas; the instances are dealt to "
    "them in turn. They appear when all are complete.")
flags.DEFINE_string("vocab_file", None, "The vocab.txt of the BERT model.")
flags.DEFINE_bool("do_lower_case", True,
                  "Lower-case the text: true for uncased models.")
flags.DEFINE_bool(
    "do_whole_word_mask", False,
    "Mask all word pieces of a word or none, instead of each piece by itself.")
flags.DEFINE_integer(
    "max_seq_length", 128,
    "Word pieces of an instance: both texts, [CLS] and two [SEP]. Longer pairs "
    "are truncated, shorter ones padded.")
flags.DEFINE_integer(
    "max_predictions_per_seq", 20,
    "Masked pieces of an instance at most: about max_seq_length x "
    "masked_lm_prob.", lower_bound=1)
flags.DEFINE_integer(
    "random_seed", 12345,
    "Seed of all choices: the same seed gives the same records, those of "
    "Google's program, with any --num_workers.")
flags.DEFINE_integer(
    "dupe_factor", 10,
    "How often each document is used, with other pairs and masks every time.",
    lower_bound=1)
flags.DEFINE_float("masked_lm_prob", 0.15, "Share of the pieces to mask.",
                   lower_bound=0.0, upper_bound=1.0)
flags.DEFINE_float(
    "short_seq_prob", 0.1,
    "Share of passes over a document with a shorter target length, drawn at "
    "random.", lower_bound=0.0, upper_bound=1.0)
flags.DEFINE_integer(
    "num_workers", None,
    "Processes to work with, at most one for each MB of text; 1 works in this "
    "one. Default: the number of cores.", lower_bound=1)
flags.DEFINE_integer(
    "shuffle_window", pretraining_pipeline.DEFAULT_SHUFFLE_WINDOW,
    "A corpus of more word pieces than this is processed in windows of whole "
    "documents, about so large: random next sentences come from the same "
    "window, and instances are shuffled within it. Each worker needs about 6 "
    "bytes of memory a piece. A corpus that fits into one window is processed "
    "exactly as by Google's program, but on one core once it is tokenized.",
    lower_bound=1, upper_bound=1 << 29)
flags.DEFINE_bool(
    "strict", False,
    "End with an error where lines cannot be used, instead of naming them and "
    "going on without them.")


def _with_flag(function):
  """Lets --do_whole_word_mask decide where the caller does not."""
  @functools.wraps(function)
  def with_flag(*args, **kwargs):
    if FLAGS.is_parsed():
      kwargs.setdefault("do_whole_word_mask", FLAGS.do_whole_word_mask)
    return function(*args, **kwargs)
  return with_flag


create_training_instances = _with_flag(
    pretraining_data.create_training_instances)
create_instances_from_document = _with_flag(
    pretraining_data.create_instances_from_document)
create_masked_lm_predictions = _with_flag(
    pretraining_data.create_masked_lm_predictions)


def _check_flags():
  """Checks flags and the vocabulary, before any text is read."""
  values = FLAGS.flag_values_dict()
  counts = {name: FLAGS[name].present for name in values}
  flag_checks.check(values, [name for name in counts if counts[name]])
  flag_checks.warn_of_repeats(counts, values)
  file_kinds.check_text_file(FLAGS.vocab_file, "vocab_file",
                             "the vocab.txt of the model")
  with pretraining_files.open_file(FLAGS.vocab_file, "rb",
                                   "vocab_file") as reader:
    content = reader.read()
  vocab = vocabulary.check(
      content, FLAGS.vocab_file,
      vocabulary.Case(FLAGS.do_lower_case, bool(counts["do_lower_case"])),
      vocabulary.MARKERS + (vocabulary.MASK,))
  vocabulary.check_no_blank_end(vocab, FLAGS.vocab_file)


def _find_input_files():
  files = pretraining_files.find_files(FLAGS.input_file, "input_file")
  for path in files:
    file_kinds.check_text_file(path, "input_file", "text in UTF-8",
                               is_corpus=True)
  return files


def main(_):
  """Makes the records that the flags ask for."""
  _check_flags()
  settings = pretraining_data.InstanceSettings(
      FLAGS.max_seq_length, FLAGS.max_predictions_per_seq, FLAGS.dupe_factor,
      FLAGS.masked_lm_prob, FLAGS.short_seq_prob, FLAGS.do_whole_word_mask)
  pretraining_pipeline.check_settings(settings)
  where = pretraining_pipeline.CorpusSettings(
      _find_input_files(),
      pretraining_files.split_list(FLAGS.output_file, "output_file"),
      FLAGS.vocab_file, FLAGS.do_lower_case, FLAGS.random_seed,
      FLAGS.shuffle_window,
      FLAGS.num_workers or workers.count_cores(), FLAGS.strict)
  logging.info("Input files: %s", ", ".join(where.input_files))
  counts = pretraining_pipeline.create_records(where, settings)
  logging.info(
      "%d instances (%d with a random next sentence) of %d sentences in %d "
      "documents; output files: %s", counts.instances, counts.random_next,
      counts.sentences, counts.documents, ", ".join(where.output_files))


def _run(argv):
  """Calls `main`; a UserError becomes a message without a traceback."""
  # Not multigpu.cli: it imports TensorFlow, which takes longer than a small
  # corpus (see tasks/pretraining_files.py).
  logging.set_verbosity(logging.INFO)
  interruption.listen()
  try:
    flag_checks.check_leftovers(argv[1:])
    main(argv)
  except interruption.Interruption as stop:
    print("Stopped by %s: the output files were not made." % stop.signal_name,
          file=sys.stderr)
    raise
  except UserError as error:
    sys.exit("ERROR: %s" % error)


if __name__ == "__main__":
  for name in ("input_file", "output_file", "vocab_file"):
    flags.mark_flag_as_required(name)
  app.run(_run)
