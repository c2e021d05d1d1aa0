"""Whether the values of the flags make sense, alone and together.

Works on {name: value} of all flags of a program, so that one table serves all
of them: a rule about a flag that a program does not have does not apply. No
TensorFlow, no FLAGS.
"""
import logging
import math
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Sequence

from multigpu.errors import UserError

_LOG = logging.getLogger(__name__)

Values = Mapping[str, Any]


class _Rule(NamedTuple):
  """What a flag must be, where `needed_for` is true (None: always)."""
  flag: str
  holds: Callable[[Any], bool]
  wanted: str
  needed_for: Optional[str] = None


_RULES = (
    _Rule("learning_rate", lambda rate: 0 < rate < math.inf,
          "a number above 0 (usual: 2e-5 to 5e-5, pre-training 1e-4)",
          "do_train"),
    _Rule("num_train_epochs", lambda epochs: 0 < epochs < math.inf,
          "a number above 0 (usual: 2 to 4)", "do_train"),
    _Rule("warmup_proportion", lambda share: 0 <= share < 1,
          "a number from 0 to below 1 (usual: 0.1)", "do_train"),
    _Rule("max_seq_length", lambda length: length >= 3,
          "3 or more: [CLS], [SEP] and a word piece"),
    _Rule("n_best_size", lambda size: size >= 1, "1 or more (usual: 20)",
          "do_predict"),
    _Rule("max_answer_length", lambda length: length >= 0,
          "0 or more (usual: 30)", "do_predict"),
    _Rule("null_score_diff_threshold", lambda score: not math.isnan(score),
          "a number", "do_predict"),
    _Rule("max_predictions_per_seq", lambda number: number >= 1,
          "1 or more (usual: 0.15 x max_seq_length)"),
    _Rule("seed", lambda seed: abs(seed) < 2**31, "a number below 2^31"),
)

# Flag -> the one without which it has no effect.
_DEPENDS_ON = {
    "train_file": "do_train",
    "predict_file": "do_predict",
    "null_score_diff_threshold": "version_2_with_negative",
}

# Far above what any BERT was trained with: 5 where 5e-5 was meant.
_HIGH_LEARNING_RATE = 0.05


def check(values: Values, given: Sequence[str] = ()) -> None:
  """Checks all flags; warns of odd ones.

  Args:
    values: {flag: value} of all flags of the program.
    given: those that the user passed.

  Raises:
    UserError: one or more are wrong, all in one message.
  """
  mistakes = [_describe(rule, values, given) for rule in _RULES
              if _applies(rule, values) and not rule.holds(values[rule.flag])]
  mistakes += _find_contradictions(values, given)
  if mistakes:
    raise UserError("\n".join(mistakes))
  _warn(values, given)


def check_leftovers(arguments: Sequence[str]) -> None:
  """Refuses words between the flags, after which flags are not read.

  Args:
    arguments: what is left of the command line, without the program.

  Raises:
    UserError: there is something.
  """
  if arguments:
    raise UserError(
        "unexpected {!r}{}: flags are written --name=value, without spaces "
        "(--do_train=True), and patterns in quotes (--input_file='*.tfrecord')."
        .format(arguments[0],
                " and {} more words".format(len(arguments) - 1)
                if len(arguments) > 1 else ""))


def warn_of_repeats(counts: Mapping[str, int], values: Values) -> None:
  """Warns of flags that were given more than once.

  No error: scripts append flags to change what they have.

  Args:
    counts: {flag: how often it was given}.
    values: {flag: value that counts}.
  """
  for flag, count in sorted(counts.items()):
    if count > 1:
      _LOG.warning("--%s was given %d times: the last one counts, --%s=%s.",
                   flag, count, flag, values[flag])


def _applies(rule: _Rule, values: Values) -> bool:
  return (values.get(rule.flag) is not None
          and (rule.needed_for is None or bool(values.get(rule.needed_for))))


def _describe(rule: _Rule, values: Values, given: Sequence[str]) -> str:
  return "--{}={}{}, wanted {}.".format(
      rule.flag, values[rule.flag], _default(rule.flag, given), rule.wanted)


def _default(flag: str, given: Sequence[str]) -> str:
  return "" if flag in given else " (the default)"


def _find_contradictions(values: Values, given: Sequence[str]) -> List[str]:
  mistakes = []
  length = values.get("max_seq_length")
  predictions = values.get("max_predictions_per_seq")
  if length and predictions and predictions > length:
    mistakes.append(
        "--max_predictions_per_seq={}, but a sequence has only "
        "--max_seq_length={}{}: pass about 0.15 x max_seq_length.".format(
            predictions, length, _default("max_seq_length", given)))
  steps, warmup = (values.get("num_train_steps"),
                   values.get("num_warmup_steps"))
  if (steps and warmup and values.get("do_train") and warmup > steps
      and "num_warmup_steps" in given):
    mistakes.append(
        "--num_warmup_steps={} is more than --num_train_steps={}{}: the "
        "learning rate would never be reached. Pass about a tenth of the "
        "steps.".format(warmup, steps, _default("num_train_steps", given)))
  return mistakes


def _warn(values: Values, given: Sequence[str]) -> None:
  for flag, other in _DEPENDS_ON.items():
    if flag in given and values.get(flag) and not values.get(other):
      _LOG.warning("--%s has no effect without --%s=True.", flag, other)
  rate = values.get("learning_rate")
  if values.get("do_train") and rate and rate > _HIGH_LEARNING_RATE:
    _LOG.warning("--learning_rate=%s is very high for BERT: was %se-5 meant?",
                 rate, rate)
  steps, warmup = (values.get("num_train_steps"),
                   values.get("num_warmup_steps"))
  if values.get("do_train") and steps and warmup and warmup > steps:
    # An old command that leaves the flag out goes on working.
    _LOG.warning(
        "--num_warmup_steps=%d (the default) is more than --num_train_steps=%d:"
        " the learning rate will end at %.2g of --learning_rate. Pass about a "
        "tenth of the steps.", warmup, steps, steps / warmup)
  _warn_of_masks(values)


def _warn_of_masks(values: Values) -> None:
  share = values.get("masked_lm_prob")
  if share is None:
    return
  limit = values["max_predictions_per_seq"]
  wanted = share * values["max_seq_length"]
  # Google's advice is the product itself, rounded in some way.
  if limit < int(wanted):
    _LOG.warning(
        "--max_predictions_per_seq=%d masks fewer pieces of long instances "
        "than --masked_lm_prob=%s of --max_seq_length=%d, which is %d.", limit,
        share, values["max_seq_length"], round(wanted))
