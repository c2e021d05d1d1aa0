"""The files that describe a model: bert_config.json and the vocabulary."""
import tensorflow.compat.v1 as tf

import modeling
from multigpu.errors import UserError
import tokenization


def read_bert_config(path: str) -> modeling.BertConfig:
  """Reads bert_config.json.

  Raises:
    UserError: no such file, or it is no configuration.
  """
  try:
    config = modeling.BertConfig.from_json_file(path)
  except (tf.errors.OpError, ValueError, AttributeError) as error:
    raise UserError(
        "--bert_config_file={}: not a readable bert_config.json ({}).".format(
            path, _first_line(error))) from error
  if not config.vocab_size:
    raise UserError(
        "--bert_config_file={}: \"vocab_size\" is missing.".format(path))
  return config


def load_tokenizer(vocab_file: str, do_lower_case: bool,
                   config: modeling.BertConfig) -> tokenization.FullTokenizer:
  """Makes the tokenizer of a vocabulary that fits the model.

  Raises:
    UserError: no such file, not text, or more entries than the model has.
  """
  try:
    tokenizer = tokenization.FullTokenizer(vocab_file, do_lower_case)
  except (tf.errors.OpError, ValueError) as error:
    raise UserError("--vocab_file={}: not a readable vocabulary ({}).".format(
        vocab_file, _first_line(error))) from error
  num_entries = max(tokenizer.vocab.values(), default=-1) + 1
  # Fewer is fine: Google pads some models' vocabularies to a round number.
  if num_entries > config.vocab_size:
    raise UserError(
        "--vocab_file={} has {} entries, but bert_config.json says vocab_size "
        "{}: use the vocabulary that came with the checkpoint.".format(
            vocab_file, num_entries, config.vocab_size))
  return tokenizer


def _first_line(error: Exception) -> str:
  return str(error).split("\n")[0]
