"""Whether the content of bert_config.json describes a BERT model."""
import difflib
import json
import logging
import math
from typing import Any, Dict, List, Optional, Tuple

from multigpu.errors import UserError

_LOG = logging.getLogger(__name__)

_COUNTS = ("vocab_size", "hidden_size", "num_hidden_layers",
           "num_attention_heads", "intermediate_size",
           "max_position_embeddings", "type_vocab_size")
_SHARES = ("hidden_dropout_prob", "attention_probs_dropout_prob")
_KNOWN = _COUNTS + _SHARES + ("hidden_act", "initializer_range")
# In Google's Chinese and multilingual models, read by nothing.
_IGNORED = ("directionality", "pooler_fc_size", "pooler_num_attention_heads",
            "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type")
# As in modeling.get_activation.
_ACTIVATIONS = ("gelu", "relu", "tanh", "linear")
# Hugging Face's name for the form that is plain "gelu" here.
_OTHER_NAMES = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu"}
# Of Hugging Face's config.json; its models of other kinds have these, too.
_OTHER_MODELS = ("model_type", "position_embedding_type")

_HINT = "Use the bert_config.json that came with the checkpoint."


def parse(content: bytes, path: str) -> Dict[str, Any]:
  """Reads the content of bert_config.json and checks it.

  Args:
    content: of the file, UTF-8 with or without a byte order mark.
    path: of the file, for messages.

  Raises:
    UserError: it is no JSON object, or no BERT model can be made of it; all
      mistakes in one message.
  """
  where = "--bert_config_file={}".format(path)
  try:
    pairs = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_Pairs)
  except UnicodeDecodeError as error:
    line = content.count(b"\n", 0, error.start) + 1
    raise UserError(
        "{} is not UTF-8 text (byte 0x{:02x} in line {}). {}".format(
            where, content[error.start], line, _HINT)) from error
  except (ValueError, RecursionError) as error:
    raise UserError("{} is not a readable bert_config.json: it is not JSON "
                    "({}). {}".format(where, error, _HINT)) from error
  if not isinstance(pairs, _Pairs):
    raise UserError("{} is not a bert_config.json: wanted a JSON object "
                    "{{...}}, got a {}. {}".format(
                        where, type(pairs).__name__, _HINT))
  settings = dict(pairs)
  mistakes = _find_mistakes(settings)
  if len(settings) < len(pairs):
    keys = [key for key, _ in pairs]
    mistakes += ["\"{}\" is there twice".format(key) for key in settings
                 if keys.count(key) > 1]
  if mistakes:
    text = "; ".join(mistakes)
    raise UserError("{}: {}{}{} {}".format(
        where, text, "" if text.endswith("?") else ".",
        _describe_keys(settings), _HINT))
  _warn_of_keys(settings, where)
  return settings


class _Pairs(List[Tuple[str, Any]]):
  """A JSON object, with keys that are there twice."""


def _find_mistakes(settings: Dict[str, Any]) -> List[str]:
  mistakes = list(filter(None, (
      _check_value(key, value) for key, value in settings.items())))
  for key in settings:
    meant = _guess_meant(key, settings)
    if meant:
      mistakes.append("unknown key \"{}\": did you mean \"{}\"?".format(
          key, meant))
  if "vocab_size" not in settings:
    mistakes.append("\"vocab_size\" is missing")
  if not mistakes:
    width, heads = (settings.get(key, default) for key, default in (
        ("hidden_size", 768), ("num_attention_heads", 12)))
    if width % heads:
      mistakes.append("\"hidden_size\" {} is not a multiple of "
                      "\"num_attention_heads\" {}".format(width, heads))
  return mistakes


def _check_value(key: str, value: Any) -> Optional[str]:
  """What is wrong with one setting, None where nothing is."""
  # JSON's numbers may be whole ones of any length, NaN and Infinity.
  is_number = (isinstance(value, int) and not isinstance(value, bool)
               or isinstance(value, float) and math.isfinite(value))
  wanted = None
  if key in _COUNTS:
    if not (isinstance(value, int) and is_number and value >= 1):
      wanted = "a whole number, 1 or more"
  elif key in _SHARES:
    if not (is_number and 0 <= value < 1):
      wanted = "a number from 0 to below 1"
  elif key == "initializer_range":
    if not (is_number and value > 0):
      wanted = "a number above 0"
  elif key == "hidden_act":
    name = value.lower() if isinstance(value, str) else value
    if isinstance(name, str) and name in _OTHER_NAMES:
      wanted = "\"{}\", which is the same function here".format(
          _OTHER_NAMES[name])
    elif name not in _ACTIVATIONS + ("", None):
      wanted = "one of " + ", ".join(_ACTIVATIONS)
  elif key == "model_type" and value != "bert":
    wanted = "\"bert\": this is another kind of model"
  elif key == "position_embedding_type" and value != "absolute":
    wanted = "\"absolute\", the only kind there is here"
  if wanted is None:
    return None
  return "\"{}\" is {}, wanted {}".format(key, _shorten(value), wanted)


def _shorten(value: Any) -> str:
  text = json.dumps(value)
  return text if len(text) <= 40 else text[:37] + "..."


def _guess_meant(key: str, settings: Dict[str, Any]) -> Optional[str]:
  """The setting whose name is misspelt as `key`: its default would be used."""
  if key in _KNOWN + _IGNORED + _OTHER_MODELS:
    return None
  absent = [name for name in _KNOWN if name not in settings]
  return next(iter(difflib.get_close_matches(key, absent, 1, 0.85)), None)


def _describe_keys(settings: Dict[str, Any]) -> str:
  """Shows the keys of an object that is something else altogether."""
  if any(key in _KNOWN for key in settings):
    return ""
  return " Its keys are: {}{}.".format(
      ", ".join(_shorten(key) for key in list(settings)[:5]) or "none",
      ", ..." if len(settings) > 5 else "")


def _warn_of_keys(settings: Dict[str, Any], where: str) -> None:
  unknown = [key for key in settings
             if key not in _KNOWN + _IGNORED + _OTHER_MODELS]
  if unknown:
    _LOG.warning("%s: keys without effect here: %s.", where,
                 ", ".join(sorted(unknown)))
  absent = [key for key in _KNOWN if key not in settings]
  if absent:
    _LOG.warning("%s: %s not in it: the values of BERT-Base are used.", where,
                 ", ".join(absent))
