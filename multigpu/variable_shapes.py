"""Names and shapes of BERT's variables, as they follow from its configuration.

They are known without building a graph. No TensorFlow.
"""
import collections
from typing import Any, Mapping, Tuple

Shapes = Mapping[str, Tuple[int, ...]]

POOLER = "bert/pooler/dense"


def variable_shapes(config: Mapping[str, Any]) -> Shapes:
  """Returns the shapes of BertModel's variables by name, Google's names.

  Args:
    config: the content of bert_config.json.
  """
  width, inner = config["hidden_size"], config["intermediate_size"]
  shapes = collections.OrderedDict()  # type: Any

  def layer_norm(scope: str) -> None:
    shapes[scope + "/LayerNorm/beta"] = (width,)
    shapes[scope + "/LayerNorm/gamma"] = (width,)

  def dense(scope: str, rows: int, columns: int) -> None:
    shapes[scope + "/kernel"] = (rows, columns)
    shapes[scope + "/bias"] = (columns,)

  for name, size in (("word", "vocab_size"), ("token_type", "type_vocab_size"),
                     ("position", "max_position_embeddings")):
    shapes["bert/embeddings/%s_embeddings" % name] = (config[size], width)
  layer_norm("bert/embeddings")
  for index in range(config["num_hidden_layers"]):
    layer = "bert/encoder/layer_%d" % index
    for name in ("query", "key", "value"):
      dense("%s/attention/self/%s" % (layer, name), width, width)
    dense(layer + "/attention/output/dense", width, width)
    layer_norm(layer + "/attention/output")
    dense(layer + "/intermediate/dense", width, inner)
    dense(layer + "/output/dense", inner, width)
    layer_norm(layer + "/output")
  dense(POOLER, width, width)
  return shapes


def head_shapes(config: Mapping[str, Any]) -> Shapes:
  """Returns the shapes of the heads' variables that a checkpoint may have.

  Those of a classifier are not among them: they depend on its labels.
  """
  width = config["hidden_size"]
  return {
      "cls/predictions/transform/dense/kernel": (width, width),
      "cls/predictions/transform/dense/bias": (width,),
      "cls/predictions/transform/LayerNorm/beta": (width,),
      "cls/predictions/transform/LayerNorm/gamma": (width,),
      "cls/predictions/output_bias": (config["vocab_size"],),
      "cls/seq_relationship/output_weights": (2, width),
      "cls/seq_relationship/output_bias": (2,),
      "cls/squad/output_weights": (2, width),
      "cls/squad/output_bias": (2,),
  }


def classifier_shapes(config: Mapping[str, Any], num_labels: int) -> Shapes:
  """Returns the shapes of the classifier head's variables."""
  return {"output_weights": (num_labels, config["hidden_size"]),
          "output_bias": (num_labels,)}
