"""One start of a run script: trains and predicts with one head on records.

All run scripts go through here, so that each of them starts from checkpoints,
goes on, evaluates and predicts in the same way.
"""
import contextlib
import logging
import os
from typing import (Any, Dict, Iterator, List, Mapping, NamedTuple, Optional,
                    Union)

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from multigpu import agreement
from multigpu import by_length
from multigpu import checkpoints
from multigpu import evaluation
from multigpu import files
from multigpu import fitting
from multigpu import inference
from multigpu import padding
from multigpu import record_files
from multigpu import records
from multigpu import sequences
from multigpu import session_options
from multigpu import training
from multigpu import weights_only
from multigpu.devices import Devices
from multigpu.head import Head, padding_rules
from multigpu.meeting import Meeting
from multigpu.model_fn import ModelSettings, build_model_fn
from optimization import ADAMW, DEFAULT_NUM_PACKS

_LOG = logging.getLogger(__name__)


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
  # Batches are cut to their longest row, rounded up to this, where the head
  # allows it; 0 = never.
  length_multiple: int = padding.LENGTH_MULTIPLE
  # Training: rows of similar length meet in a global batch.
  bucket_by_length: bool = False
  precision: str = session_options.FP32
  num_packs: int = DEFAULT_NUM_PACKS
  optimizer: str = ADAMW
  keep_checkpoint_max: int = 5
  evaluations: evaluation.EvaluationSettings = evaluation.EvaluationSettings()
  # With the other hosts, where there are any.
  meeting: Optional[Meeting] = None

  @property
  def is_chief(self) -> bool:
    """Whether this host evaluates and predicts: one alone does."""
    return self.devices.hosts is None or self.devices.hosts.is_chief

  @property
  def inference_dir(self) -> str:
    """The folder whose newest checkpoint is evaluated and predicts."""
    return (evaluation.best_dir(self.output_dir) if self.evaluations.keep_best
            else self.output_dir)

  def check_checkpoint(self, head: Head, table: records.RecordTable,
                       is_training: bool) -> None:
    """Checks that a checkpoint in output_dir is one of this model.

    Args:
      head: the task.
      table: the features of the rows that it will be used for.
      is_training: whether the run trains.

    Raises:
      UserError: it has other variables; the message names all differences.
    """
    path = checkpoints.newest(self.output_dir)
    if path is not None:
      model_fn = build_model_fn(head, ModelSettings(self.bert_config))
      fitting.check(path, fitting.model_shapes(model_fn, table), is_training)

  def make_output_dir(self) -> None:
    """Makes output_dir and clears away what dead runs left half-written.

    To be called before anything is written there.
    """
    tf.io.gfile.makedirs(self.output_dir)
    files.remove_leftovers(self.output_dir)

  def train(self, head: Head, rows: Rows, plan: training.TrainPlan,
            learning_rate: float,
            scoring: Optional[evaluation.Scoring] = None) -> None:
    """Trains to the end of the plan, going on from the newest checkpoint.

    Args:
      head: the task.
      rows: what to train on.
      plan: steps and batch sizes.
      learning_rate: the highest one.
      scoring: how to evaluate in between, where the settings say so.
    """
    if self.meeting:
      self._agree(self.meeting, rows, plan, learning_rate)
    first_step = checkpoints.latest_step(self.output_dir)
    if first_step and self.precision == session_options.FP16:
      checkpoints.check_loss_scale(self.output_dir)
    evaluator = self._catch_up(scoring, first_step, plan.num_train_steps)
    if (evaluator and evaluator.is_over()
        and first_step < plan.num_train_steps):
      evaluator.log_end()
      return
    length_multiple = self._training_multiple(head)
    order = self._training_order(rows, plan, first_step)
    model_fn = build_model_fn(head, ModelSettings(
        bert_config=self.bert_config,
        init_checkpoint=None if first_step else self.init_checkpoint,
        learning_rate=learning_rate,
        num_train_steps=plan.num_train_steps,
        num_warmup_steps=plan.num_warmup_steps,
        seed=self.seed,
        accumulation_steps=plan.accumulation_steps,
        precision=self.precision,
        num_packs=self.num_packs,
        optimizer=self.optimizer))
    with agreement.common_training(self.meeting), _explained(rows):
      training.train(
          model_fn,
          lambda params: records.training_dataset(
              rows.paths, rows.table, params["batch_size"], order,
              length_multiple),
          self.devices, plan, training.RunSettings(
              self.output_dir, self.save_checkpoints_steps, self.seed,
              self.keep_checkpoint_max),
          [evaluation.EvaluationHook(evaluator, plan.num_train_steps)]
          if evaluator else [])
    if not self.is_chief:
      _LOG.info("Trained. Checkpoints, evaluation and prediction are the "
                "chief's.")

  def _agree(self, meeting: Meeting, rows: Rows, plan: training.TrainPlan,
             learning_rate: float) -> None:
    """Checks that all hosts train the same, from the same checkpoint on."""
    agreement.check_settings(meeting, dict(
        plan._asdict(), learning_rate=learning_rate, seed=self.seed,
        device=self.devices.kind, precision=self.precision,
        optimizer=self.optimizer,
        bucket_by_length=self.bucket_by_length,
        all_reduce_packs=self.num_packs, length_multiple=self.length_multiple,
        init_checkpoint=bool(self.init_checkpoint),
        bert_config=sorted(self.bert_config.to_dict().items()),
        TensorFlow=tf.__version__,
        records=agreement.describe_files(rows.paths)))
    agreement.share_checkpoint(meeting, self.output_dir)

  def _catch_up(self, scoring: Optional[evaluation.Scoring], first_step: int,
                last_step: int) -> Optional[evaluation.Evaluator]:
    """Makes what evaluates in between; evaluates what a kill has left out."""
    if not self.evaluations.every_steps or scoring is None:
      return None
    score = scoring.score

    def score_folder(folder: str, step: int) -> Mapping[str, Any]:
      scores = score(self._replace(
          output_dir=folder, evaluations=evaluation.EvaluationSettings()))
      self.add_scores_to_curves(scores, step)
      return scores

    evaluator = evaluation.Evaluator(
        self.output_dir, self.evaluations, scoring.metrics, score_folder,
        first_step)
    newest = checkpoints.newest(self.output_dir)
    if newest and evaluator.is_due(first_step, last_step):
      weights: str = newest
      evaluator.evaluate(first_step, lambda path: weights_only.copy_weights(
          weights, path))
    return evaluator

  def _training_multiple(self, head: Head) -> int:
    """What the training of this head cuts lengths to; 0 = it does not."""
    rules = padding_rules(head)
    cuts = rules is not None and rules.cut_training and self.length_multiple
    if self.bucket_by_length and not cuts:
      _LOG.warning(
          "--bucket_by_length only changes the order of the rows here: the "
          "loss of this task reads the padding, which is computed as ever.")
    return self.length_multiple if cuts else 0

  def _training_order(self, rows: Rows, plan: training.TrainPlan,
                      first_step: int) -> records.TrainingOrder:
    buckets = None
    if self.bucket_by_length:
      buckets = by_length.plan_buckets(rows.paths, plan.global_batch_size,
                                       self.seed)
    share = None
    hosts = self.devices.hosts
    if hosts:
      count = self.devices.num_local_replicas
      share = records.Share(plan.num_replicas, hosts.rank * count, count)
    return records.TrainingOrder(
        self.seed, first_step * plan.global_batch_size, buckets, share)

  def predict(self, head: Head, rows: Rows, num_rows: int,
              per_replica_batch_size: int, title: str = "predict"
              ) -> Iterator[Dict[str, np.ndarray]]:
    """Yields the head's predictions for each row once, in order.

    This host does it alone. The weights are those of the newest checkpoint in
    `inference_dir`, else of `init_checkpoint`. Where the head allows it, rows
    go through the model sorted by length and cut; the results are those of the
    full length, and padding of theirs has the value that the head declares.

    Args:
      head: the task.
      rows: what to predict.
      num_rows: how many of them.
      per_replica_batch_size: batch of one replica.
      title: name of the progress bar.
    """
    if self.evaluations.keep_best:
      evaluation.check_best(self.output_dir, self.evaluations.keep_best,
                            must_exist=True)
    devices = self.devices.local()
    checkpoint = checkpoints.for_inference(
        self.inference_dir, self.init_checkpoint)
    model_fn = build_model_fn(head, ModelSettings(
        bert_config=self.bert_config,
        init_checkpoint=None if checkpoint else self.init_checkpoint,
        seed=self.seed))

    rules = padding_rules(head)
    full_length = sequences.full_length(rows.table)
    is_cut = bool(rules and full_length and self.length_multiple)

    def input_fn(params: Dict[str, Any]) -> Any:
      arguments = (rows.paths, rows.table, params["batch_size"], num_rows,
                   devices.num_replicas)
      if is_cut:
        return records.sorted_inference_dataset(*arguments,
                                                self.length_multiple)
      return records.inference_dataset(*arguments)

    round_rows = per_replica_batch_size * devices.num_replicas
    predictions = inference.iterate_predictions(
        model_fn, input_fn, devices, inference.InferenceSettings(
            num_rows=num_rows, per_replica_batch_size=per_replica_batch_size,
            checkpoint=checkpoint, seed=self.seed, title=title,
            window_rows=by_length.plan_window(round_rows) if is_cut else 0,
            full_length=full_length or 0,
            fill=rules.fill if rules else {}))
    return _iterate_explained(predictions, rows)

  def checkpoint_step(self) -> int:
    """The step of the weights that are evaluated; 0 before any training."""
    return checkpoints.latest_step(self.inference_dir)

  def add_scores_to_curves(self, scores: Mapping[str, float],
                           step: Optional[int] = None) -> None:
    """Writes scores for TensorBoard to output_dir/eval, where Estimator would.

    Args:
      scores: {name: score}.
      step: of the weights that have them; None = those that `predict` takes.
    """
    if step is None:
      step = self.checkpoint_step()
    values = [tf.Summary.Value(tag=name, simple_value=float(score))
              for name, score in scores.items() if name != "global_step"]
    # In a graph, even an empty one: the class refuses eager execution.
    # The suffix: files of one second would have one name.
    with tf.Graph().as_default(), tf.summary.FileWriter(
        os.path.join(self.output_dir, "eval"),
        filename_suffix=".step-{}".format(step)) as writer:
      writer.add_summary(tf.Summary(value=values), step)


@contextlib.contextmanager
def _explained(rows: Rows) -> Iterator[None]:
  """Turns TensorFlow's error on a damaged record into one that names it."""
  try:
    yield
  except tf.errors.OpError as error:
    record_files.explain_errors(error, rows.paths,
                                record_files.Expected(rows.table))
    raise


def _iterate_explained(predictions: Iterator[Dict[str, np.ndarray]], rows: Rows
                       ) -> Iterator[Dict[str, np.ndarray]]:
  with _explained(rows):
    yield from predictions
