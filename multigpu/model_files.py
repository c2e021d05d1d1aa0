"""The files that describe a model: bert_config.json and the vocabulary."""
import tensorflow.compat.v1 as tf

import modeling
from multigpu import config_checks
from multigpu import file_kinds
from multigpu import vocabulary
from multigpu.errors import UserError
import tokenization


def read_bert_config(path: str) -> modeling.BertConfig:
  """Reads bert_config.json.

  Raises:
    UserError: no such file, or it is no configuration of a BERT model.
  """
  content = _read(path, "bert_config_file", "the bert_config.json of the model")
  return modeling.BertConfig.from_dict(config_checks.parse(content, path))


def check_vocabulary(path: str, config: modeling.BertConfig,
                     case: vocabulary.Case) -> None:
  """Checks a vocabulary against the model and --do_lower_case.

  Raises:
    UserError: no such file, no vocabulary of BERT, more entries than the model
      has, or another letter case.
  """
  content = _read(path, "vocab_file", "the vocab.txt of the model")
  vocab = vocabulary.check(content, path, case)
  vocabulary.check_size(vocab, config.vocab_size, path)
  vocabulary.warn_of_size(vocab, config.vocab_size, path)


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
        vocab_file, str(error).split("\n")[0])) from error
  vocabulary.check_size(tokenizer.vocab, config.vocab_size, vocab_file)
  return tokenizer


def _read(path: str, flag: str, wanted: str) -> bytes:
  file_kinds.check_text_file(path, flag, wanted)
  with tf.io.gfile.GFile(path, "rb") as reader:
    return reader.read()
