"""The seam between a task and everything else.

A task is a function `head(model, features, mode)` that makes the task's own
variables on top of a `modeling.BertModel` and returns a `HeadOutput`. It knows
nothing of devices; `multigpu.model_fn` does the rest for all tasks.
"""
from typing import Any, Callable, Dict, NamedTuple, Optional

import modeling


class HeadOutput(NamedTuple):
  """What a task's head returns."""
  # {name: [batch_size, ...]}: one row a row of the batch.
  predictions: Dict[str, Any]
  # Scalar, the mean over the rows of this replica; None without labels.
  loss: Optional[Any] = None


Head = Callable[[modeling.BertModel, Dict[str, Any], str], HeadOutput]
