"""One start of a run script: trains and predicts with one head on records.

All run scripts go through here, so that each of them starts from checkpoints,
goes on, evaluates and predicts in the same way.
"""
import os
from typing import (Any, Dict, Iterator, List, Mapping, NamedTuple, Optional,
                    Union)

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from multigpu import checkpoints
from multigpu import inference
from multigpu import records
from multigpu import training
from multigpu.devices import Devices
from multigpu.head import Head
from multigpu.model_fn import ModelSettings, build_model_fn


class Rows(NamedTuple):
  """Record files and what is in them."""
  paths: Union[str, List[str]]
  table: records.RecordTable


class Run(NamedTuple):
  """Devices, model and folder of a run."""
  devices: Devices
  bert_config: modeling.BertConfig
  output_dir: str
  init_checkpoint: Optional[str] = None
  save_checkpoints_steps: int = 1000
  seed: int = 0

  def train(self, head: Head, rows: Rows, plan: training.TrainPlan,
            learning_rate: float) -> None:
    """Trains to the end of the plan, going on from the newest checkpoint.

    Args:
      head: the task.
      rows: what to train on.
      plan: steps and batch sizes.
      learning_rate: the highest one.
    """
    first_step = checkpoints.latest_step(self.output_dir)
    order = records.TrainingOrder(
        self.seed, first_step * plan.global_batch_size)
    model_fn = build_model_fn(head, ModelSettings(
        bert_config=self.bert_config,
        init_checkpoint=None if first_step else self.init_checkpoint,
        learning_rate=learning_rate,
        num_train_steps=plan.num_train_steps,
        num_warmup_steps=plan.num_warmup_steps,
        seed=self.seed))
    training.train(
        model_fn,
        lambda params: records.training_dataset(
            rows.paths, rows.table, params["batch_size"], order),
        self.devices, plan, training.RunSettings(
            self.output_dir, self.save_checkpoints_steps, self.seed))

  def predict(self, head: Head, rows: Rows, num_rows: int,
              per_replica_batch_size: int, title: str = "predict"
              ) -> Iterator[Dict[str, np.ndarray]]:
    """Yields the head's predictions for each row once, in order.

    The weights are those of the newest checkpoint in the folder, else of
    `init_checkpoint`.

    Args:
      head: the task.
      rows: what to predict.
      num_rows: how many of them.
      per_replica_batch_size: batch of one replica.
      title: name of the progress bar.
    """
    checkpoint = checkpoints.for_inference(
        self.output_dir, self.init_checkpoint)
    model_fn = build_model_fn(head, ModelSettings(
        bert_config=self.bert_config,
        init_checkpoint=None if checkpoint else self.init_checkpoint,
        seed=self.seed))

    def input_fn(params: Dict[str, Any]) -> Any:
      return records.inference_dataset(
          rows.paths, rows.table, params["batch_size"], num_rows,
          self.devices.num_replicas)

    return inference.iterate_predictions(
        model_fn, input_fn, self.devices, inference.InferenceSettings(
            num_rows=num_rows, per_replica_batch_size=per_replica_batch_size,
            checkpoint=checkpoint, seed=self.seed, title=title))

  def add_scores_to_curves(self, scores: Mapping[str, float]) -> None:
    """Writes scores for TensorBoard to output_dir/eval, where Estimator would.

    Args:
      scores: {name: score} of the newest checkpoint.
    """
    values = [tf.Summary.Value(tag=name, simple_value=float(score))
              for name, score in scores.items() if name != "global_step"]
    # In a graph, even an empty one: the class refuses eager execution.
    with tf.Graph().as_default(), tf.summary.FileWriter(
        os.path.join(self.output_dir, "eval")) as writer:
      writer.add_summary(tf.Summary(value=values),
                         checkpoints.latest_step(self.output_dir))
