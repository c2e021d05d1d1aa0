"""The seam between a task and everything else.

A task is a function `head(model, features, mode)` that makes the task's own
variables on top of a `modeling.BertModel` and returns a `HeadOutput`. It knows
nothing of devices; `multigpu.model_fn` does the rest for all tasks.
"""
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Sequence

import modeling


class WeightedMean(NamedTuple):
  """Sum of weighted values / (sum of weights + epsilon).

  Both sums are those of this replica. They are added up over all replicas
  before the division: the mean of the replicas' means would give the rows of
  a replica with few weights too much influence.
  """
  total: Any  # scalar
  weight: Any  # scalar
  epsilon: float = 0.0


class HeadOutput(NamedTuple):
  """What a task's head returns."""
  # {name: [batch_size, ...]}: one row a row of the batch.
  predictions: Dict[str, Any]
  # The loss is their sum; none where the features have no labels.
  loss_terms: Sequence[WeightedMean] = ()
  # {name: mean}: curves of the training for TensorBoard.
  curves: Mapping[str, WeightedMean] = {}


class PaddingRules(NamedTuple):
  """What a head does with the positions beyond the longest row of a batch."""
  # Training may leave them out: neither the loss nor the curves read them.
  cut_training: bool
  # {prediction [batch_size, seq_length]: its value there}, for when they are
  # left out. The others must not depend on them.
  fill: Mapping[str, float] = {}


def declare_padding(rules: PaddingRules) -> Callable[[Any], Any]:
  """A decorator for heads. One without it gets all its padding."""
  def decorate(head: Any) -> Any:
    head.padding_rules = rules
    return head
  return decorate


def padding_rules(head: Any) -> Optional[PaddingRules]:
  """What the head has declared."""
  return getattr(head, "padding_rules", None)


Head = Callable[[modeling.BertModel, Dict[str, Any], str], HeadOutput]
