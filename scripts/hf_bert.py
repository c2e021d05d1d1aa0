"""A Hugging Face BERT under Google's names: names, shapes, configuration.

What the two forms have in common and where they differ. No files and no
TensorFlow in here: scripts/import_checkpoint.py reads, writes and checks.
"""
import os
import re
from typing import Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from multigpu.errors import UserError
from multigpu.variable_shapes import head_shapes, variable_shapes

WEIGHTS = "model.safetensors"

# Hugging Face's name of an activation -> Google's. "gelu" there is x * Phi(x)
# by erf, here by tanh; the other three are the tanh form there too.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}

# Keys that both configurations have under one name.
CONFIG_KEYS = ("vocab_size", "hidden_size", "num_hidden_layers",
               "num_attention_heads", "intermediate_size",
               "hidden_dropout_prob", "attention_probs_dropout_prob",
               "max_position_embeddings", "type_vocab_size",
               "initializer_range")

HEAD_NAMES = {
    "cls.predictions.bias": "cls/predictions/output_bias",
    "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
    "cls.seq_relationship.bias": "cls/seq_relationship/output_bias",
    "qa_outputs.weight": "cls/squad/output_weights",
    "qa_outputs.bias": "cls/squad/output_bias",
}

Arrays = Dict[str, np.ndarray]


class Source(NamedTuple):
  """A Hugging Face BERT as read from its folder.

  Attributes:
    folder: where it was read from.
    config: the parsed `config.json`.
    tensors: the arrays of `model.safetensors` by name.
    vocab: the bytes of `vocab.txt`.
    do_lower_case: what `tokenizer_config.json` says, None without it.
  """
  folder: str
  config: dict
  tensors: Arrays
  vocab: bytes
  do_lower_case: Optional[bool]


class Conversion(NamedTuple):
  """The same model under Google's names.

  Attributes:
    config: the content of `bert_config.json`.
    variables: float32 arrays by variable name.
    left_out: names in the source without a place here, with the reason.
    missing: variables of the model that the source does not have.
    notes: what behaves differently, one sentence each.
  """
  config: dict
  variables: Arrays
  left_out: List[str]
  missing: List[str]
  notes: List[str]


def convert_config(config: dict, where: str) -> Tuple[dict, List[str]]:
  """Turns `config.json` into `bert_config.json`.

  Returns:
    The configuration and notes on what differs from the source.

  Raises:
    UserError: the model is no BERT or uses something Google's model has not.
  """
  wanted = {"model_type": "bert", "position_embedding_type": "absolute",
            "is_decoder": False, "add_cross_attention": False}
  for key, value in wanted.items():
    if config.get(key, value) != value:
      raise UserError("%s: %s is %r, only %r can be imported" %
                      (where, key, config[key], value))
  absent = [key for key in CONFIG_KEYS + ("hidden_act",) if key not in config]
  if absent:
    raise UserError("%s: %s missing" % (where, ", ".join(absent)))
  activation = config["hidden_act"]
  if activation not in ACTIVATIONS:
    raise UserError("%s: hidden_act is %r, wanted one of %s" %
                    (where, activation, ", ".join(sorted(ACTIVATIONS))))
  notes = []
  if activation == "gelu":
    notes.append('hidden_act "gelu" is the erf form in the source and the tanh '
                 "form here: an activation differs by less than 5e-4")
  epsilon = config.get("layer_norm_eps", 1e-12)
  if epsilon != 1e-12:
    notes.append("layer_norm_eps is %g in the source and 1e-12 here" % epsilon)
  result = {key: config[key] for key in CONFIG_KEYS}
  result["hidden_act"] = ACTIVATIONS[activation]
  return result, notes


def google_name(name: str) -> str:
  """Returns the variable name for a Hugging Face tensor name.

  The result for a tensor that has no place here is no variable's name, as
  `bert/embeddings/position_ids`.

  >>> google_name("encoder.layer.3.output.dense.weight")
  'bert/encoder/layer_3/output/dense/kernel'
  """
  if name in HEAD_NAMES:
    return HEAD_NAMES[name]
  if not name.startswith(("bert.", "cls.")):
    name = "bert." + name
  name = re.sub(r"\.layer\.(\d+)\.", r".layer_\1.", name)
  name = re.sub(r"LayerNorm\.weight$", "LayerNorm.gamma", name)
  name = re.sub(r"LayerNorm\.bias$", "LayerNorm.beta", name)
  name = re.sub(r"_embeddings\.weight$", "_embeddings", name)
  name = re.sub(r"\.weight$", ".kernel", name)
  return name.replace(".", "/")


def convert_tensors(tensors: Arrays, config: dict,
                    where: str) -> Tuple[Arrays, List[str]]:
  """Renames the arrays, transposes kernels and checks every shape.

  A dense layer's weight is [out, in] in the source; Google's kernel is
  [in, out]. The head's `output_weights` are [out, in] in both.

  Returns:
    float32 arrays by variable name, and the names that were left out.

  Raises:
    UserError: a shape is not the one that `config` gives.
  """
  shapes = dict(variable_shapes(config), **head_shapes(config))
  variables = {}  # type: Arrays
  left_out = []
  for name in sorted(tensors):
    target = google_name(name)
    if target not in shapes:
      left_out.append(name)
      continue
    array = tensors[name]
    array = array.T if target.endswith("/kernel") else array
    if array.shape != shapes[target]:
      raise UserError(
          "%s: %s has the shape %s, but config.json asks for %s (%s). The two "
          "files belong to different models." %
          (where, name, list(tensors[name].shape), list(shapes[target]),
           target))
    if target in variables:
      raise UserError("%s holds %s twice (as %s)" % (where, target, name))
    variables[target] = np.ascontiguousarray(array, dtype=np.float32)
  return variables, left_out


def check_vocab(vocab: bytes, config: dict, where: str) -> List[str]:
  """Compares the vocabulary with the embedding table; returns notes."""
  entries = len(vocab.splitlines())
  rows = config["vocab_size"]
  if entries > rows:
    raise UserError("%s has %d entries, but the embedding table has only %d "
                    "rows" % (where, entries, rows))
  if entries < rows:
    return ["vocab.txt has %d entries; rows %d to %d of the embedding table "
            "are unused" % (entries, entries, rows - 1)]
  return []


def convert(source: Source) -> Conversion:
  """Turns a source into Google's form.

  Raises:
    UserError: the source is not a BERT, or its parts do not fit each other.
  """
  config_file = os.path.join(source.folder, "config.json")
  weights_file = os.path.join(source.folder, WEIGHTS)
  config, notes = convert_config(source.config, config_file)
  notes += check_vocab(source.vocab, config,
                       os.path.join(source.folder, "vocab.txt"))
  variables, left_out = convert_tensors(source.tensors, config, weights_file)
  missing = [name for name in variable_shapes(config) if name not in variables]
  needed = [name for name in missing if not name.startswith("bert/pooler/")]
  if needed:
    raise UserError(
        "%s lacks %d of the model's variables: %s%s" %
        (weights_file, len(needed), ", ".join(needed[:5]),
         ", ..." if len(needed) > 5 else ""))
  decoder = source.tensors.get("cls.predictions.decoder.weight")
  if decoder is not None and not np.array_equal(
      decoder, variables["bert/embeddings/word_embeddings"]):
    notes.append("cls.predictions.decoder.weight is not the word embedding: "
                 "here the two are one table, so masked-LM results differ")
  return Conversion(config, variables, left_out, missing, notes)
